"""The filter of system calls: as a program, and on a real desktop."""

from __future__ import annotations

import errno
import platform
import struct

import pytest
from conftest import Guest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.files.read_home import ReadLimits
from actors.desktop.providers.sandbox import command
from apis.tasks.verify.verify import WantedFile

X86, NATIVE = 0xC000003E, platform.machine() == "x86_64"
# Numbers of arch/x86/entry/syscalls/syscall_64.tbl.
REFUSED = {"ptrace": 101, "mount": 165, "umount2": 166, "kexec_load": 246, "keyctl": 250, "perf_event_open": 298,
           "name_to_handle_at": 303, "setns": 308, "process_vm_readv": 310, "bpf": 321, "userfaultfd": 323}  # fmt: skip
MISSING = {"io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "clone3": 435, "pidfd_getfd": 438,
           "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447}  # fmt: skip
CLONES, SOCKETS = {"clone": 56, "unshare": 272}, {"socket": 41, "socketpair": 53}
pytestmark = pytest.mark.skipif(not NATIVE, reason="numbers of x86-64")


def verdict(program: bytes, number: int, argument: int = 0, third: int = 0, architecture: int = X86) -> int:
    """What the kernel's interpreter would return; 0 for a call that goes through, else the errno."""
    data = struct.pack("=IIQQQQ", number, architecture, 0, argument, 0, third)
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = value = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        match code:
            case 0x20:  # load
                value = struct.unpack_from("=I", data, k)[0]
            case 0x54:  # and
                value &= k
            case 0x06:  # return
                return 0 if k == 0x7FFF0000 else k & 0xFFFF
            case _:
                at += yes if {0x15: value == k, 0x25: value > k, 0x35: value >= k}[code] else no


@given(st.booleans(), st.integers(0, 460), st.integers(0, 2**64 - 1))
def test_what_is_refused_is_what_is_listed(nested: bool, number: int, argument: int) -> None:
    known = REFUSED | MISSING | CLONES | SOCKETS
    assert {*REFUSED} <= {*command.REFUSED}
    assert {*MISSING} <= {*command.MISSING}
    program = command.filter_program(user_namespaces=nested)
    for names, wanted in ((REFUSED, errno.EPERM), (MISSING, errno.ENOSYS)):
        assert {verdict(program, each, argument) for each in names.values()} == {wanted}
    if number not in known.values() and number < 100:  # nothing before ptrace is refused, but clones and sockets
        assert verdict(program, number, argument) == 0
    # Other calling conventions are refused.
    assert verdict(program, 4, architecture=0x40000003) == errno.ENOSYS
    assert verdict(program, 0x40000001) == errno.ENOSYS


SIGCHLD, VFORK, USER, PID, NET = 17, 0x4100, 0x10000000, 0x20000000, 0x40000000
OTHERS = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "cgroup": 0x2000000}


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("call", CLONES)
def test_only_the_namespaces_of_chromium_may_be_made_and_only_where_it_is(call: str, nested: bool) -> None:
    program, refused = command.filter_program(user_namespaces=nested), 0 if nested else errno.EPERM
    for flags, wanted in {SIGCHLD: 0, VFORK: 0, USER: refused, USER | PID | NET | SIGCHLD: refused}.items():
        assert verdict(program, CLONES[call], flags) == wanted, flags
    for kind, flag in OTHERS.items():
        assert verdict(program, CLONES[call], flag | USER) == errno.EPERM, kind
    assert verdict(program, CLONES[call], 0x80) == (errno.EPERM if call == "unshare" else 0)


@given(st.integers(0, 60), st.integers(0, 300), st.booleans())
def test_only_sockets_that_a_desktop_needs_may_be_made(family: int, protocol: int, high: bool) -> None:
    program = command.filter_program(user_namespaces=True)
    unix, inet, inet6, netlink = 1, 2, 10, 16
    wanted = 0 if family in (unix, inet, inet6, netlink) and not high else errno.EAFNOSUPPORT
    if family == netlink and protocol not in (0, 15) and not high:
        wanted = errno.EPROTONOSUPPORT
    for number in SOCKETS.values():  # the kernel takes the lower half of what a program passes
        assert verdict(program, number, family | high << 32, protocol) == wanted


TRIES = """
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
def tried(*call):
    ctypes.set_errno(0)
    return 'through' if c.syscall(*call) >= 0 else os.strerror(ctypes.get_errno())
with open('tried', 'w') as out:
    for name, call in CALLS.items():
        out.write(f'{name}: {tried(*call)}\\n')
"""
CALLS = {"bpf": (321, 0, 0, 0), "keyctl": (250, 0, -3, 0), "io_uring": (425, 1, 0), "userfaultfd": (323, 0),
         "ptrace": (101, 16, 1, 0, 0), "perf": (298, 0, 0, -1, -1, 0), "getpid": (39,),
         "vsock": (41, 40, 1, 0), "netfilter": (41, 16, 3, 12), "mount namespace": (272, USER | OTHERS["mount"]),
         "unix": (41, 1, 1, 0), "loopback": (41, 2, 1, 0), "routes": (41, 16, 3, 0)}  # fmt: skip


async def test_a_desktop_is_behind_the_filter(guest: Guest) -> None:
    mounts = "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /mnt && echo mounted' > mounted 2>&1"
    await guest("launch", argv=["sh", "-c", f'{mounts}; python3 -c "$0"; touch done', f"CALLS = {CALLS}\n{TRIES}"])
    for _ in range(100):
        await guest("settle", timeout_ms=100)
        wanted = [WantedFile("done"), WantedFile("tried"), WantedFile("mounted")]
        done, tried, mounted = await guest.provider.read_home(guest.desktop, wanted, ReadLimits())
        if done.data is not None:
            break
    said = dict(line.split(": ", 1) for line in (tried.data or b"").decode().splitlines())
    refused = "Operation not permitted"
    assert said == {
        "bpf": refused, "keyctl": refused, "io_uring": "Function not implemented", "userfaultfd": refused,
        "ptrace": refused, "perf": refused, "getpid": "through", "mount namespace": refused,
        "vsock": "Address family not supported by protocol", "netfilter": "Protocol not supported",
        "unix": "through", "loopback": "through", "routes": "through",
    }  # fmt: skip
    assert b"mounted" not in (mounted.data or b"")
