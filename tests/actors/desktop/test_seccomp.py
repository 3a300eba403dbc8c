"""The filter of system calls: as a program, and on a real desktop."""

from __future__ import annotations

import errno
import struct

import pytest
from conftest import Guest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop.files.read_home import ReadLimits
from actors.desktop.providers.sandbox import command
from apis.tasks.verify.verify import WantedFile

MACHINES = ("x86_64", "aarch64")


def verdict(program: bytes, *, architecture: int, number: int, argument: int = 0, third: int = 0) -> int:
    """What the kernel's interpreter would return; 0 for a call that goes through, else the errno."""
    data = struct.pack("=IIQQQQ", number, architecture, 0, argument, 0, third)
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = value = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        if code == command._LOAD:
            value = struct.unpack_from("=I", data, k)[0]
        elif code == command._RETURN:
            return 0 if k == command._ALLOW else k & 0xFFFF
        else:
            holds = {command._EQUAL: value == k, command._AT_LEAST: value >= k, command._ANY_BIT: bool(value & k)}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
@given(st.booleans(), st.integers(0, 500), st.integers(0, 2**32 - 1))
def test_what_is_refused_is_what_is_listed(machine: str, nested: bool, number: int, argument: int) -> None:
    program = command.filter_program(user_namespaces=nested, machine=machine)
    found = verdict(program, architecture=command._AUDIT[machine], number=number, argument=argument)
    wanted = 0
    if number in command._REFUSED[machine].values():
        wanted = errno.EPERM
    elif number in command._MISSING.values() or number == command._CLONE3:
        wanted = errno.ENOSYS
    elif number in command._CLONES[machine].values() or number in command._SOCKETS[machine].values():
        return  # which looks at arguments, below
    assert found == wanted


SIGCHLD, VFORK, USER, PID, NET = 17, 0x4100, 0x10000000, 0x20000000, 0x40000000
OTHERS = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "cgroup": 0x2000000}


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_namespaces_of_chromium_may_be_made_and_only_where_it_is(machine: str) -> None:
    for nested in (True, False):
        program, own = command.filter_program(user_namespaces=nested, machine=machine), command._AUDIT[machine]
        for call, number in command._CLONES[machine].items():
            refused = 0 if nested else errno.EPERM
            for flags, wanted in {SIGCHLD: 0, VFORK: 0, USER: refused, USER | PID | NET | SIGCHLD: refused}.items():
                assert verdict(program, architecture=own, number=number, argument=flags) == wanted, (call, flags)
            for kind, flag in OTHERS.items():
                assert verdict(program, architecture=own, number=number, argument=flag | USER) == errno.EPERM, kind
        unshare = command._CLONES[machine]["unshare"]
        assert verdict(program, architecture=own, number=unshare, argument=0x80) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
@given(st.integers(0, 60), st.integers(0, 300))
def test_only_sockets_that_a_desktop_needs_may_be_made(machine: str, family: int, protocol: int) -> None:
    program, own = command.filter_program(user_namespaces=True, machine=machine), command._AUDIT[machine]
    unix, inet, inet6, netlink = 1, 2, 10, 16
    wanted = 0 if family in (unix, inet, inet6, netlink) else errno.EAFNOSUPPORT
    if family == netlink and protocol not in (0, 15):
        wanted = errno.EPROTONOSUPPORT
    for number in command._SOCKETS[machine].values():
        assert verdict(program, architecture=own, number=number, argument=family, third=protocol) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_other_calling_conventions_are_refused(machine: str) -> None:
    program = command.filter_program(user_namespaces=True, machine=machine)
    assert verdict(program, architecture=0x40000003, number=4) == errno.EPERM
    own = command._AUDIT["x86_64"]
    if machine == "x86_64":
        assert verdict(program, architecture=own, number=command._X32 | 1) == errno.ENOSYS
    assert not command.filter_supported("riscv64")


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


@pytest.mark.skipif(not command.filter_supported("x86_64"), reason="numbers of x86-64")
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
