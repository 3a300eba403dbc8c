"""The command line of one sandbox, and the filter of system calls for it.

Invariant: the guest sees this machine's programs read-only, its own HOME, /tmp and run folder, and nothing else. It has
its own network (loopback alone). It has its own process, ipc, host name, mount and user namespaces, and no root in any
of them. A refused system call fails with an errno and ends nothing. Calls of another architecture's numbers are
refused.

The filter is written by libseccomp. It keeps a guest from parts of the kernel that are
large or see across processes: io_uring, BPF, keys, tracing, mounts, modules and clocks. Chromium's own sandbox needs
user, process and network namespaces, so these are refused only where no Chromium is installed. A network namespace does
not contain every kind of socket: AF_VSOCK would reach the hypervisor from a desktop that has no network.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from apis.guest.code import start as code_start

GUEST_UID = 1000
GUEST_USER = "agent"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin"  # of the first the editor's command alone
GUEST_HOME = "/home/agent"
GUEST_RUN = f"/run/user/{GUEST_UID}"
GUEST_CODE = "/opt/computerrl/guest"
DOOR = "/run/door"  # what only the session's start may write
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


def sshd(folder: str = GUEST_RUN, listens_at: str = "") -> str:
    """The settings of an SSH server with keys in `folder`, which listens at that address for its owner or nowhere."""
    forwards = f"remote\nPermitListen {listens_at}" if listens_at else "no"
    return f"""HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
X11Forwarding no
AllowTcpForwarding {forwards}
AllowAgentForwarding no
AllowStreamLocalForwarding no
LogLevel ERROR
"""


# Of /etc only what programs of a desktop read; host keys, accounts and services stay out.
ETC = (
    "X11", "alternatives", "at-spi2", "bash.bashrc", "dbus-1", "dconf", "fonts", "gimp", "gtk-2.0", "gtk-3.0",
    "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libreoffice", "localtime", "machine-id", "mime.types",
    "pango", "profile", "python3", "python3.11", "ssh/moduli", "terminfo", "vdpau_wrapper.cfg", "xdg",
)  # fmt: skip
VAR = ("/var/lib/dbus", "/var/cache/fontconfig", "/var/lib/libreoffice")


def started(argv: Sequence[str], uid: int, fds: Sequence[int] = (), **more: Any) -> subprocess.Popen[bytes]:
    """A program of user `uid`, which inherits the open ones of `fds`."""
    line, kept = [*as_user(uid), *argv], [fd for fd in fds if fd >= 0]
    return subprocess.Popen(line, stdin=subprocess.DEVNULL, pass_fds=kept, env=environment(), **more)


def as_user(uid: int) -> list[str]:
    """What runs a command as that user. The kernel copies this whole process for a child that Python itself makes
    another user's."""
    own = uid == os.geteuid()
    return [] if own else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


def environment() -> dict[str, str]:
    """What programs get that this process starts for desktops."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}


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
    for path in (*VAR, *(f"/etc/{name}" for name in ETC)):
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


def session_command(name: str, size: tuple[int, int], *way_in: str) -> list[str]:
    """The session's process in a desktop with a screen of `size` pixels."""
    what = ("--run", GUEST_RUN, "--home", GUEST_HOME, "--token", name, "--size", "x".join(map(str, size)))
    return [PYTHON, "-I", "-S", GUEST_CODE, "session", *what, *way_in]


def sandbox_command(
    *,
    disk: Path,
    shared: Path,
    editor: Path | None,
    door: Path,
    session: Sequence[str],
    filter_fd: int,
    user_namespaces: bool,
    terminals: Path,
) -> list[str]:
    """The bwrap command that runs `session`, with the folder `door` for its way in.

    `filter_fd` holds the filter of system calls, or is -1. Programs may make `user_namespaces` of their own where an
    application needs them. The guest has the file system of `terminals` for its own, where one is mounted there.
    """
    own_terminals = ("--dev-bind", str(terminals), "/dev/pts") if terminals.is_mount() else ()
    size_of_small = ("--size", str(SMALL_BYTES))
    command = [
        "bwrap", "--unshare-user", "--uid", str(GUEST_UID), "--gid", str(GUEST_UID), "--unshare-pid", "--unshare-ipc",
        "--unshare-uts", "--unshare-net", "--unshare-cgroup-try", "--hostname", "desktop", "--die-with-parent",
        "--new-session", "--cap-drop", "ALL",
        "--proc", "/proc", "--dev", "/dev", *own_terminals, *size_of_small, "--tmpfs", "/dev/shm",  # noqa: S108 - the guest's
        *_programs(shared, editor),
    ]  # fmt: skip
    command += ["--seccomp", str(filter_fd)] if filter_fd >= 0 else []
    command += [] if user_namespaces else ["--disable-userns"]
    command += [
        "--bind", str(disk / "home"), GUEST_HOME, "--bind", str(disk / "tmp"), "/tmp",  # noqa: S108
        "--bind", str(disk / "run"), GUEST_RUN, "--bind", str(door), DOOR, "--dir", "/run/sshd",
        "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", GUEST_HOME, "--clearenv", "--setenv", "PATH", PATH,
        "--setenv", "USER", GUEST_USER, "--setenv", "LANG", "C.UTF-8", *session,
    ]  # fmt: skip
    return command


# The library that writes filters; bubblewrap's users have it, since apt needs it. SCMP_* and enums of seccomp.h.
_LIBRARY = "libseccomp.so.2"
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SCMP_ACT_*
_ON_OTHER_ARCHITECTURES, _SPEED, _BINARY_TREE = 2, 8, 2  # SCMP_FLTATR_ACT_BADARCH, SCMP_FLTATR_CTL_OPTIMIZE
_EQUAL, _ABOVE, _MASKED = 4, 6, 7  # SCMP_CMP_EQ, SCMP_CMP_GT, SCMP_CMP_MASKED_EQ
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_NEW_OTHERS = (0x00020000, 0x02000000, 0x04000000, 0x08000000)  # CLONE_NEW{NS,CGROUP,UTS,IPC}: nothing here makes these
_NEW_TIME = 0x80  # CLONE_NEWTIME, of unshare alone: clone has its signal there
REFUSED = (
    "ptrace", "syslog", "uselib", "ustat", "sysfs", "vhangup", "modify_ldt", "pivot_root", "adjtimex", "acct",
    "settimeofday", "mount", "umount2", "swapon", "swapoff", "reboot", "iopl", "ioperm", "init_module", "delete_module",
    "quotactl", "lookup_dcookie", "clock_settime", "kexec_load", "add_key", "request_key", "keyctl", "migrate_pages",
    "move_pages", "perf_event_open", "fanotify_init", "name_to_handle_at", "open_by_handle_at", "clock_adjtime",
    "setns", "process_vm_readv", "process_vm_writev", "kcmp", "finit_module", "kexec_file_load", "bpf", "userfaultfd",
)  # fmt: skip
# A program that finds these missing does without. Of clone3 the flags lie in memory, where a filter can't look.
MISSING = (
    "io_uring_setup", "io_uring_enter", "io_uring_register", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "pidfd_getfd", "mount_setattr", "quotactl_fd", "memfd_secret", "clone3",
)  # fmt: skip
_NETLINK = 16
FAMILIES = (1, 2, 10, _NETLINK)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
NETLINKS = (0, 15)  # NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT: what glib and Chromium listen to


class _Compare(ctypes.Structure):
    """struct scmp_arg_cmp: which argument of a call, how it is compared and with what."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class Refusal(NamedTuple):
    """A call that fails with an errno: always, or where its arguments compare so."""

    number: int
    call: str
    compared: tuple[tuple[int, int, int, int], ...] = ()  # as `_Compare`


def refusals(*, user_namespaces: bool) -> Iterator[Refusal]:
    """Every call that a guest is refused."""
    yield from (Refusal(errno.EPERM, call) for call in REFUSED)
    yield from (Refusal(errno.ENOSYS, call) for call in MISSING)
    for call in ("clone", "unshare"):
        own = (*_NEW_OTHERS, *((_NEW_TIME,) if call == "unshare" else ()), *(() if user_namespaces else (_NEW_USER,)))
        yield from (Refusal(errno.EPERM, call, ((0, _MASKED, flag, flag),)) for flag in own)
    for call in ("socket", "socketpair"):
        for way, families in ((_EQUAL, set(range(max(FAMILIES))) - {*FAMILIES}), (_ABOVE, {max(FAMILIES)})):
            yield from (Refusal(errno.EAFNOSUPPORT, call, ((0, way, family, 0),)) for family in families)
        for way, protocols in ((_EQUAL, set(range(max(NETLINKS))) - {*NETLINKS}), (_ABOVE, {max(NETLINKS)})):
            for protocol in protocols:
                yield Refusal(errno.EPROTONOSUPPORT, call, ((0, _EQUAL, _NETLINK, 0), (2, way, protocol, 0)))


def filter_document(*, user_namespaces: bool) -> dict[str, Any]:
    """The filter of system calls as container programs take it: `linux.seccomp` of the OCI runtime specification."""
    ways = {_EQUAL: "SCMP_CMP_EQ", _ABOVE: "SCMP_CMP_GT", _MASKED: "SCMP_CMP_MASKED_EQ"}
    calls = []
    for number, call, compared in refusals(user_namespaces=user_namespaces):
        args = [{"index": at, "op": ways[way], "value": one, "valueTwo": two} for at, way, one, two in compared]
        calls.append({"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": args})
    return {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls}


def filter_program(*, user_namespaces: bool) -> bytes:
    """The filter of system calls as the kernel takes it; b"" where the library is missing."""
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return b""
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_ALLOW))

    library.seccomp_attr_set(context, _ON_OTHER_ARCHITECTURES, _ERRNO | errno.ENOSYS)
    library.seccomp_attr_set(context, _SPEED, _BINARY_TREE)
    for number, call, arguments in refusals(user_namespaces=user_namespaces):
        known = library.seccomp_syscall_resolve_name(call.encode())
        compared = (_Compare * len(arguments))(*(_Compare(*argument) for argument in arguments))
        done = library.seccomp_rule_add_array(context, _ERRNO | number, known, len(arguments), compared)
        if done not in (0, -errno.EDOM):  # a call that this architecture lacks
            raise OSError(-done, f"no filter of {call}: {os.strerror(-done)}")
    with os.fdopen(os.memfd_create("seccomp", os.MFD_CLOEXEC), "rb") as file:
        library.seccomp_export_bpf(context, file.fileno())
        library.seccomp_release(context)
        file.seek(0)
        return file.read()


@contextmanager
def filter_opened(filter_: bytes) -> Iterator[int]:
    """A descriptor that `filter_` can be read from, once; -1 where there is none."""
    if not filter_:
        yield -1
        return
    with os.fdopen(os.memfd_create("seccomp", os.MFD_CLOEXEC), "wb") as file:
        file.write(filter_)
        file.flush()
        file.seek(0)
        yield file.fileno()
