"""The command line of one sandbox.

Invariant: the guest sees this machine's programs read-only, its own HOME, /tmp and run folder, and nothing else. It has
its own network (loopback alone). It has its own process, ipc, host name, mount and user namespaces, and no root in any
of them.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from apis.guest.code import start as code_start

GUEST_UID = 1000
GUEST_USER = "agent"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin"  # of the first the editor's command alone
GUEST_HOME = "/home/agent"
GUEST_RUN = f"/run/user/{GUEST_UID}"
GUEST_CODE = "/opt/computerrl/guest"
PYTHON = "/usr/bin/python3"
EDITOR_PROGRAM = f"""#!/bin/sh
exec {PYTHON} -I {GUEST_CODE} code "$@"
"""
AGENT = (PYTHON, "-I", GUEST_CODE, "agent", "--run", GUEST_RUN)
MESSAGES_BYTES = 64 << 10
TRIAL_BYTES = 2 << 30  # of a process of a trial, and of a file
# Of a trial's programs: settings are read from files, as on a desktop, and git runs nothing that a repository names.
TRIAL_ENVIRONMENT = {
    "GSETTINGS_BACKEND": "keyfile", "PYTHONDONTWRITEBYTECODE": "1", "GIT_PAGER": "cat", "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": "/dev/null",
}  # fmt: skip
SMALL_BYTES = 64 << 20  # of the writable places that are not on the desktop's disk

PASSWD = f"""root:x:0:0:root:/root:/usr/sbin/nologin
{GUEST_USER}:*:{GUEST_UID}:{GUEST_UID}:{GUEST_USER}:{GUEST_HOME}:/bin/bash
sshd:*:100:65534::/run/sshd:/usr/sbin/nologin
nobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = f"""root:x:0:
{GUEST_USER}:x:{GUEST_UID}:
nogroup:x:65534:
"""
SSHD = f"""HostKey {GUEST_RUN}/host_key
AuthorizedKeysFile {GUEST_RUN}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
X11Forwarding no
AllowTcpForwarding no
AllowAgentForwarding no
AllowStreamLocalForwarding no
LogLevel ERROR
"""
# Of /etc only what programs of a desktop read; host keys, accounts and services stay out.
_ETC = (
    "X11", "alternatives", "at-spi2", "bash.bashrc", "dbus-1", "dconf", "fonts", "gimp", "gtk-2.0", "gtk-3.0",
    "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libreoffice", "localtime", "machine-id", "mime.types",
    "pango", "profile", "python3", "python3.11", "ssh/moduli", "terminfo", "vdpau_wrapper.cfg", "xdg",
)  # fmt: skip
_VAR = ("/var/lib/dbus", "/var/cache/fontconfig", "/var/lib/libreoffice")


def limited(open_files: int) -> list[str]:
    """What runs a command with limits for it and all that it starts: `open_files` of a process, no core dumps, no
    priority over others, few messages in queues."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = open_files if hard == resource.RLIM_INFINITY else min(open_files, hard)
    # A limit of one byte, for with none the kernel still starts the host's own program for core dumps, if it has one.
    return [
        "prlimit", f"--nofile={files}:{files}", "--core=1:1", "--rtprio=0:0", "--nice=0:0",
        f"--msgqueue={MESSAGES_BYTES}:{MESSAGES_BYTES}",
    ]  # fmt: skip


def bounded(cpu_s: int) -> list[str]:
    """What runs a command of a trial with limits of processor time, memory, processes and files."""
    return [
        "prlimit", f"--cpu={cpu_s}:{cpu_s}", f"--data={TRIAL_BYTES}:{TRIAL_BYTES}", "--nproc=2000:2000",
        "--nofile=512:512", f"--fsize={TRIAL_BYTES}:{TRIAL_BYTES}", "--core=1:1", "--rtprio=0:0", "--nice=0:0",
    ]  # fmt: skip


def programs() -> list[str]:
    """What a sandbox sees of this machine, read-only: its programs, and of /etc and /var what these read."""
    seen = [
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/sbin", "/sbin",
        "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
        "--size", str(SMALL_BYTES), "--tmpfs", "/var",
    ]  # fmt: skip
    for path in (*_VAR, *(f"/etc/{name}" for name in _ETC)):
        seen += ["--ro-bind-try", path, path]
    return seen


def _programs(shared: Path, editor: Path | None) -> list[str]:
    """What every desktop and trial sees of this machine, read-only: programs, accounts and our own code."""
    seen = [*programs(), "--size", str(SMALL_BYTES), "--tmpfs", "/usr/local"]
    etc = shared / "etc"
    if editor is not None:
        seen += ["--ro-bind", str(editor), code_start.EDITOR, "--ro-bind", str(etc / "code"), "/usr/local/bin/code"]
    return [
        *seen, "--remount-ro", "/usr/local", "--ro-bind", str(etc / "passwd"), "/etc/passwd",
        "--ro-bind", str(etc / "group"), "/etc/group", "--ro-bind", str(etc / "chromium.d"), "/etc/chromium.d",
        "--ro-bind", str(shared / "guest"), GUEST_CODE,
    ]  # fmt: skip


def trial_command(
    *,
    filter_fd: int,
    home: Path,
    tmp: Path,
    shared: Path,
    editor: Path | None,
    env: Mapping[str, str],
    argv: Sequence[str],
) -> list[str]:
    """The bwrap command that runs `argv` in `home`, a copy, with nothing of the desktop's but that."""
    filter_ = ("--seccomp", str(filter_fd)) if filter_fd >= 0 else ()
    variables = {"PATH": PATH, "HOME": GUEST_HOME, "USER": GUEST_USER, "LANG": "C.UTF-8", **TRIAL_ENVIRONMENT, **env}
    return [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", str(GUEST_UID), "--gid", str(GUEST_UID),
        "--hostname", "desktop", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--disable-userns",
        *filter_, *_programs(shared, editor), "--proc", "/proc", "--dev", "/dev",
        "--size", str(SMALL_BYTES), "--tmpfs", "/dev/shm",  # noqa: S108 - its own
        "--bind", str(home), GUEST_HOME, "--bind", str(tmp), "/tmp",  # noqa: S108
        "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", GUEST_HOME, "--clearenv",
        *(word for name, value in variables.items() for word in ("--setenv", name, value)), "--", *argv,
    ]  # fmt: skip


def sandbox_command(
    *,
    disk: Path,
    shared: Path,
    editor: Path | None,
    name: str,
    size: str,
    listen_fd: int,
    status_fd: int,
    block_fd: int,
    go_fd: int,
    filter_fd: int,
    user_namespaces: bool,
    terminals: Path,
) -> list[str]:
    """The bwrap command. It says its state on `status_fd` and starts its first process once `block_fd` has a byte.

    That process, the session, goes on once `go_fd` has a byte and ends if it never comes: an owner that dies while it
    starts a sandbox, too early for the kernel to take the sandbox along, leaves none. `filter_fd` holds the filter of
    system calls, or is -1. Programs may make `user_namespaces` of their own where an application needs them. The guest
    has the file system of `terminals` for its own, where one is mounted there.
    """
    own_terminals = ("--dev-bind", str(terminals), "/dev/pts") if terminals.is_mount() else ()
    size_of_small = ("--size", str(SMALL_BYTES))
    command = [
        "bwrap", "--unshare-user", "--uid", str(GUEST_UID), "--gid", str(GUEST_UID), "--unshare-pid", "--unshare-ipc",
        "--unshare-uts", "--unshare-net", "--unshare-cgroup-try", "--hostname", "desktop", "--die-with-parent",
        "--new-session", "--json-status-fd", str(status_fd), "--block-fd", str(block_fd), "--cap-drop", "ALL",
        "--proc", "/proc", "--dev", "/dev", *own_terminals, *size_of_small, "--tmpfs", "/dev/shm",  # noqa: S108 - the guest's
        *_programs(shared, editor),
    ]  # fmt: skip
    command += ["--seccomp", str(filter_fd)] if filter_fd >= 0 else []
    command += [] if user_namespaces else ["--disable-userns"]
    command += [
        "--bind", str(disk / "home"), GUEST_HOME, "--bind", str(disk / "tmp"), "/tmp",  # noqa: S108
        "--bind", str(disk / "run"), GUEST_RUN, "--dir", "/run/sshd",
        "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", GUEST_HOME, "--clearenv", "--setenv", "PATH", PATH,
        "--setenv", "USER", GUEST_USER, "--setenv", "LANG", "C.UTF-8",
        PYTHON, "-I", "-S", GUEST_CODE, "session", "--run", GUEST_RUN, "--home", GUEST_HOME, "--token", name,
        "--size", size, "--listen-fd", str(listen_fd), "--go-fd", str(go_fd),
    ]  # fmt: skip
    return command
