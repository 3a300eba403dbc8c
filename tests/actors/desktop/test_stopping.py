"""Which processes of a desktop count as held still, and that nothing a guest can start runs on while it is read."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conftest import Guest

from actors.desktop.config import DesktopsConfig, SandboxConfig
from actors.desktop.files.read_home import ReadLimits
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import Outside
from actors.desktop.providers.sandbox import cgroups, ending
from actors.errors import AgentBrokeDesktop, DesktopFault
from apis.guest.session.members import Member, descendants, running
from apis.tasks.verify.verify import WantedFile
from tests.heard import until
from tests.proofs import proofs

# Each writes on and on: through processes started one by one (vfork), from a thread whose first one has ended, from
# namespaces of its own, under a name that is no text, through children that leave their session, and by leaving a child
# and ending, so that it is hardly ever there any more when its signal comes.
WRITERS = {
    "vfork": ["sh", "-c", "while :; do head -c 512 /dev/zero; done > WHERE"],
    "thread": [
        "python3",
        "-c",
        "import ctypes, threading, os\n"
        "def go():\n"
        "    with open('WHERE', 'wb', 0) as f:\n"
        "        while True: f.write(b'x'); os.sched_yield()\n"
        "threading.Thread(target=go).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n",
    ],
    "namespace": [
        "unshare", "--user", "--map-root-user", "--pid", "--fork",
        "sh", "-c", "while :; do echo x; done > WHERE",
    ],
    "name": ["sh", "-c", "printf '\\377) R' > /proc/$$/comm; while :; do echo x; done > WHERE"],
    "session": ["sh", "-c", "while :; do setsid sh -c 'echo x >> WHERE'; done"],
    "chain": [
        "python3",
        "-c",
        "import os\n"
        "with open('WHERE', 'ab', 0) as f:\n"
        "    while True:\n"
        "        f.write(b'x')\n"
        "        if os.fork(): os._exit(0)\n",
    ],
}  # fmt: skip


def member(parent: int, states: str) -> Member:
    return Member(parent, frozenset(states))


def test_only_stopped_ones_and_those_that_wait_for_them_are_still():
    stopped = {1: member(0, "T"), 2: member(1, "TZ"), 3: member(1, "Z")}
    assert running(stopped, set()) == []
    assert running({1: member(0, "TR")}, {1}) == [1]
    assert running({1: member(0, "ZR")}, {1}) == [1]
    chain = {1: member(0, "T"), 2: member(1, "D"), 3: member(2, "DT"), 4: member(3, "T")}
    assert running(chain, {2, 3}) == []
    assert running(chain, {2}) == [2, 3]  # 3 was not told, so it may run once its child does
    assert running({**chain, 4: member(3, "S")}, {2, 3, 4}) == [2, 3, 4]
    assert running({1: member(0, "D"), 2: member(1, "Z")}, {1}) == [1]
    assert running({1: member(0, "D")}, {1}) == [1]  # no child is waited for: it will come back by itself


def test_parents_are_told_before_their_children():
    """A shell that saw its job stop, and was not yet stopped itself, would go on with the next one."""
    with subprocess.Popen(["sh", "-c", "sh -c 'echo; cat; true'; true"], stdin=-1, stdout=-1) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        found = descendants(shell.pid)
        order = running(found, set())
        shell.communicate()
    assert len(order) >= 2
    assert all(order.index(pid) > order.index(found[pid].parent) for pid in order if found[pid].parent in order)


def test_a_desktop_is_looked_at_through_its_own_groups_alone(
    sleepers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host with thousands of processes makes a look no slower, so no policy can hide among them."""
    listed, real = list[str](), os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: (listed.append(str(path)), real(path))[1])
    monkeypatch.setattr(cgroups, "members", lambda _: set(sleepers))
    desktop = Outside(home="", uid=0, init_pid=sleepers[0], cgroups={"pids": "simulated"})
    assert ending._look(desktop, set()) == (sorted(sleepers), set(sleepers))
    assert "/proc" not in listed


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    """Two processes that sleep."""
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield [one.pid for one in started]
    for one in started:
        one.kill()
        one.wait()


@pytest.mark.parametrize("stays", [False, True])
async def test_a_stranger_in_a_desktop_s_groups_is_stopped_like_the_others(
    sleepers: list[int], monkeypatch: pytest.MonkeyPatch, stays: bool
):
    """It may have left the tree of processes: nothing is read before it stands still, too."""
    first, stranger = sleepers
    looks, done = 0, list[str]()

    def members(_: dict[str, str]) -> set[int]:
        nonlocal looks
        looks += 1
        return {first} | ({stranger} if stays or looks <= 5 else set())

    async def freeze(_: dict[str, str]) -> None:
        done.append("frozen")

    told, real = list[int](), os.kill

    def kill(pid: int, number: int) -> None:
        told.append(pid)
        if not (stays and pid == stranger):  # as one that the kernel wakes again and again
            real(pid, number)

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(cgroups, "members", members)
    monkeypatch.setattr(cgroups, "can_freeze", lambda _: True)
    monkeypatch.setattr(cgroups, "freeze", freeze)
    monkeypatch.setattr(cgroups, "thaw", lambda _: done.append("thawed"))
    monkeypatch.setattr(ending, "SIGNALS_S", 0.3 if stays else 30.0)
    monkeypatch.setattr(ending, "STOP_S", 1.0)
    monkeypatch.setattr(ending, "_LOOKS_LEAST", 1)  # however slow this machine is now
    desktop = Outside(home="", uid=0, init_pid=first, cgroups={"pids": "simulated"})
    if stays:
        with pytest.raises(DesktopFault, match=r"^still_running: 1 processes still run"):
            await ending.freeze(desktop)
    else:
        await ending.freeze(desktop)
        assert looks >= 6, "two looks in turn have to find none"
    assert {first, stranger} <= set(told)
    assert done == (["frozen", "thawed"] if stays else [])


@pytest.mark.parametrize("way", ["own", "signals", *proofs("freezer", "late freezer")])
async def test_nothing_that_a_guest_starts_runs_on(guest: Guest, monkeypatch: pytest.MonkeyPatch, way: str):
    for name, argv in WRITERS.items():
        await guest("launch", argv=[part.replace("WHERE", name) for part in argv])
    wanted = [WantedFile(name) for name in WRITERS]

    async def written() -> bool:
        return all(one.data for one in await guest.provider.read_home(guest.desktop, wanted, ReadLimits()))

    await until(written)
    await guest("settle", timeout_ms=100)
    desktop = guest.desktop
    if way.endswith("freezer"):
        monkeypatch.setattr(ending, "SIGNALS_S", 0.0)
        if way.startswith("late"):  # it never gets there in time: what is left are signals, and no fault
            monkeypatch.setattr(cgroups, "FREEZE_S", -1.0)
    elif way == "signals":
        assert desktop.outside is not None
        desktop = msgspec.structs.replace(desktop, outside=msgspec.structs.replace(desktop.outside, cgroups={}))
    await guest.provider.freeze(desktop)
    sizes = []
    for _ in range(2):
        seen = await guest.provider.read_home(desktop, wanted, ReadLimits())
        sizes.append([len(one.data) for one in seen if one.data is not None])
        await asyncio.sleep(0.2)
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) == len(WRITERS)


async def test_desktops_that_obey_signals_are_never_frozen(guest: Guest, monkeypatch: pytest.MonkeyPatch):
    """A frozen process outlives a host that is killed in that moment."""
    monkeypatch.setattr(cgroups, "freeze", None)
    monkeypatch.setattr(ending, "SIGNALS_S", 30.0)  # this machine may be slow
    await guest("launch", argv=["sh", "-c", "while :; do head -c 512 /dev/zero; done > busy"])
    await guest("settle", timeout_ms=100)
    await guest.provider.freeze(guest.desktop)


# The kernel itself wakes a stopped program where that has asked for it. Each timer that has gone off is set anew.
WAKES = """
import ctypes, signal, struct, time
c = ctypes.CDLL(None)
signal.signal(signal.SIGCONT, lambda *_: None)
def wake_at(timer, at_ns):
    assert c.timer_settime(timer, 1, struct.pack("qqqq", 0, 0, *divmod(at_ns, 1_000_000_000)), None) == 0
timers = [ctypes.c_void_p() for _ in range(4000)]  # one each: a stop signal takes back a waking one that is on its way
for timer in timers:
    assert c.timer_create(1, struct.pack("Qii48x", 0, signal.SIGCONT, 0), ctypes.byref(timer)) == 0
due_ns = time.monotonic_ns()
for n, timer in enumerate(timers):
    wake_at(timer, due_ns + n * 1_000_000)
open("awake", "w").close()
while True:
    for timer in timers:
        while time.monotonic_ns() < due_ns: pass
        wake_at(timer, due_ns + 4_000_000_000)
        due_ns += 1_000_000
"""


@pytest.mark.parametrize("acted", [True, *proofs(False)])
async def test_a_program_that_wakes_itself_is_the_policys_doing(
    state_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acted: bool
):
    monkeypatch.setattr(ending, "SIGNALS_S", 0.5)
    monkeypatch.setattr(ending, "STOP_S", 1.0)
    monkeypatch.setattr(ending, "_LOOKS_LEAST", 1)  # however slow this machine is now
    pool = await DesktopPool.open(DesktopsConfig(provider=SandboxConfig(state_dir=state_dir)), tmp_path)
    try:
        booted = await pool.acquire(30.0)
        body = LeasedDesktop(booted)
        await body.call("launch", {"argv": ["python3", "-c", WAKES]}, 10.0)
        assert booted.desktop.outside is not None
        await until(Path(booted.desktop.outside.home, "awake").exists)
        body.acted = acted or body.acted
        with pytest.raises(AgentBrokeDesktop if acted else DesktopFault, match=r"^still_running: "):
            await body.frozen_files([], 30.0)
    finally:
        await pool.close()


@pytest.mark.parametrize("acted", [False, *proofs(True)])
async def test_a_desktop_that_has_ended_is_not_held_still(state_dir: str, tmp_path: Path, acted: bool):
    pool = await DesktopPool.open(DesktopsConfig(provider=SandboxConfig(state_dir=state_dir)), tmp_path)
    try:
        booted = await pool.acquire(30.0)
        body = LeasedDesktop(booted)
        body.acted = acted or body.acted
        await body.call("launch", {"argv": ["sh", "-c", "until [ -e end ]; do sleep 0.05; done; pkill Xvfb"]}, 60.0)
        assert booted.desktop.outside is not None
        os.mknod(os.path.join(booted.desktop.outside.home, "end"))  # only now: the call has its answer

        async def ended() -> bool:
            return not (await booted.provider.probe(booted.desktop)).alive

        await until(ended)
        with pytest.raises(AgentBrokeDesktop if acted else DesktopFault) as ended:
            await body.frozen_files([WantedFile("x")], 30.0)
        assert str(ended.value).startswith("session_ended: " if acted else "boot_failed: ")
    finally:
        await pool.close()
