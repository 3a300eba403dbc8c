"""The system calls that no program of a desktop needs, refused by a seccomp filter.

Invariant: a refused call fails with an errno and ends nothing. Calls of another architecture's numbers are refused. A
program makes only the kinds of namespaces and of sockets that are listed here.

The filter is a classic BPF program (seccomp(2), linux/filter.h). It keeps a guest from parts of the kernel that are
large or see across processes. These are io_uring, BPF, keys, tracing, mounts, modules and clocks. Chromium's own
sandbox needs user, process and network namespaces, so these are refused only where no Chromium is installed. Inside
them mounts and the netfilter tables stay refused. A network namespace does not hold every kind of socket: AF_VSOCK
would reach the hypervisor from a desktop that has no network.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

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


def supported(machine: str = "") -> bool:
    """Whether there is a filter for `machine`, by default this one."""
    return (machine or platform.machine()) in _AUDIT


def program(*, user_namespaces: bool, machine: str = "") -> bytes:
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


def opened(filter_: bytes) -> int:
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
