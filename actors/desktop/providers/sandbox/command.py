"""The command line of one sandbox, and the filter of system calls for it.

Invariant: the guest sees this machine's programs read-only, its own HOME, /tmp and run folder, and nothing else. It has
its own network (loopback alone). It has its own process, ipc, host name, mount and user namespaces, and no root in any
of them. A refused system call fails with an errno and ends nothing. Calls of another architecture's numbers are
refused.

The filter is a classic BPF program (seccomp(2), linux/filter.h). It keeps a guest from parts of the kernel that are
large or see across processes: io_uring, BPF, keys, tracing, mounts, modules and clocks. Chromium's own sandbox needs
user, process and network namespaces, so these are refused only where no Chromium is installed. A network namespace does
not contain every kind of socket: AF_VSOCK would reach the hypervisor from a desktop that has no network.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import struct
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


_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x06,
)  # BPF_LD|W|ABS, BPF_JMP|{JEQ,JGE,JSET}|K, RET
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _THIRD_ARGUMENT = 0, 4, 16, 32  # in struct seccomp_data, little endian
_X32 = 0x40000000  # numbers of x86-64's other calling convention begin here
_NEW_USER = 0x10000000  # CLONE_NEWUSER
_NEW_OTHERS = 0x0E020000  # CLONE_NEW{CGROUP,UTS,IPC,NS}: nothing on a desktop makes these
_NEW_TIME = 0x80  # CLONE_NEWTIME, of unshare alone: clone has its signal there

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# The numbers of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_REFUSED = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "uselib": 134, "ustat": 136, "sysfs": 139, "vhangup": 153, "modify_ldt": 154,
        "pivot_root": 155, "adjtimex": 159, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
        "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246,
        "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "move_pages": 279,
        "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
    },
    "aarch64": {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "vhangup": 58, "quotactl": 60, "acct": 89,
        "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
        "ptrace": 117, "reboot": 142, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218,
        "keyctl": 219, "swapon": 224, "swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241,
        "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
# The same on both. A program that finds these missing does without.
_MISSING = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
    "quotactl_fd": 443, "memfd_secret": 447,
}  # fmt: skip
_CLONE3 = 435  # its flags lie in memory, where a filter can't look: without it programs call clone
_CLONES = {"x86_64": {"clone": 56, "unshare": 272}, "aarch64": {"clone": 220, "unshare": 97}}
_SOCKETS = {"x86_64": {"socket": 41, "socketpair": 53}, "aarch64": {"socket": 198, "socketpair": 199}}
_NETLINK = 16
_FAMILIES = (1, 2, 10, _NETLINK)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_NETLINKS = (0, 15)  # NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT: what glib and Chromium listen to


def filter_supported(machine: str = "") -> bool:
    """Whether there is a filter for `machine`, by default this one."""
    return (machine or platform.machine()) in _AUDIT


def filter_program(*, user_namespaces: bool, machine: str = "") -> bytes:
    """The filter for `machine`, by default this one, as the kernel takes it: struct sock_filter, one after another."""
    machine = machine or platform.machine()
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, _AUDIT[machine], 1, 0),
        _refuse(errno.EPERM),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for number in _REFUSED[machine].values():
        lines += [_line(_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    for number in (*_MISSING.values(), _CLONE3):
        lines += [_line(_EQUAL, number, 0, 1), _refuse(errno.ENOSYS)]
    for name, number in _CLONES[machine].items():
        lines += _of_call(number, _without(refused_flags(name, user_namespaces=user_namespaces)))
    for number in _SOCKETS[machine].values():
        lines += _of_call(number, _of_families())
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def refused_flags(call: str, *, user_namespaces: bool) -> int:
    """The flags of clone or unshare of which none may be set."""
    return _NEW_OTHERS | _NEW_TIME * (call == "unshare") | _NEW_USER * (not user_namespaces)


def _of_call(number: int, lines: list[bytes]) -> list[bytes]:
    """`lines`, which return, for the call `number` alone."""
    return [_line(_EQUAL, number, 0, len(lines)), *lines]


def _without(flags: int) -> list[bytes]:
    return [
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(_ANY_BIT, flags, 0, 1),
        _refuse(errno.EPERM),
        _line(_RETURN, _ALLOW),
    ]


def _of_families() -> list[bytes]:
    """Sockets of `_FAMILIES`, and of netlink's only `_NETLINKS`."""
    lines = [_line(_LOAD, _FIRST_ARGUMENT), _line(_EQUAL, _NETLINK, 0, len(_NETLINKS) + 3)]
    lines.append(_line(_LOAD, _THIRD_ARGUMENT))
    lines += _one_of(_NETLINKS, errno.EPROTONOSUPPORT)
    return lines + _one_of(_FAMILIES, errno.EAFNOSUPPORT)


def _one_of(values: tuple[int, ...], otherwise: int) -> list[bytes]:
    """Allow where what was loaded is one of `values`, else refuse."""
    tests = [_line(_EQUAL, value, len(values) - at, 0) for at, value in enumerate(values)]
    return [*tests, _refuse(otherwise), _line(_RETURN, _ALLOW)]


def filter_opened(filter_: bytes) -> int:
    """A descriptor that `filter_` can be read from, once."""
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(fd, filter_)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _line(code: int, value: int, if_so: int = 0, else_: int = 0) -> bytes:
    """One instruction; the last two are how many instructions a jump passes by."""
    return struct.pack("=HBBI", code, if_so, else_, value)


def _refuse(number: int) -> bytes:
    return _line(_RETURN, _ERRNO | number)
