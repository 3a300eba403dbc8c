"""Limits and counters of version 2, whose memory and process controllers no machine of ours has yet given.

The tree here is simulated: plain files laid out as the kernel lays them out. The freezer of version 2 is tested on the
kernel's own, in test_provider_sandbox.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import Guest

from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import cgroups, shares
from actors.desktop.providers.sandbox.cgroups import ALL, GroupBounds, NoRoom
from actors.desktop.providers.sandbox.command import MESSAGES_BYTES
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault

OWN, MOST = GroupBounds(200 << 20, 60), GroupBounds(500 << 20, 1000)


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent of this process's own group in a simulated hierarchy of version 2."""
    mounts, own = tmp_path / "mounts", tmp_path / "own"
    parent = tmp_path / "tree" / "slice"
    (parent / "mine").mkdir(parents=True)
    mounts.write_text(f"cgroup2 {tmp_path / 'tree'} cgroup2 rw 0 0\nproc /proc proc rw 0 0\n")
    own.write_text("0::/slice/mine\n")
    for place in (parent, parent / "mine"):
        (place / "cgroup.procs").touch()
        (place / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (place / "cgroup.subtree_control").write_text("memory\n")
    (parent / "mine" / "cgroup.procs").write_text("17\n")
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)
    monkeypatch.setattr(cgroups, "OWN", own)
    return parent


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a group of all desktops that no other program of this machine knows."""
    name = f"computerrl-test-{os.getpid()}"
    monkeypatch.setattr(cgroups, "ALL", name)
    return name


def test_simulated_version_2_limits_and_counters_lie_beside_the_own_group(simulated: Path):
    folders, warnings = cgroups.make("crl.x", OWN, MOST)
    assert (simulated / ALL / "memory.max").read_text() == str(500 << 20)
    assert (simulated / ALL / "pids.max").read_text() == "1000"
    assert folders == {"unified": str(simulated / ALL / "crl.x")}
    assert warnings == []
    assert (simulated / ALL / "crl.x" / "memory.max").read_text() == str(200 << 20)
    assert (simulated / ALL / "crl.x" / "pids.max").read_text() == "60"
    assert (simulated / "cgroup.subtree_control").read_text() == "+cpu"  # a real one would have added it to the others
    assert cgroups.enter(folders, [17]) == []
    assert cgroups.members(folders) == {17}
    assert (cgroups.oom_kills(folders), cgroups.limit_hits(folders), cgroups.cpu_s(folders)) == (0, 0, 0.0)
    group = simulated / ALL / "crl.x"
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    assert (cgroups.oom_kills(folders), cgroups.limit_hits(folders), cgroups.cpu_s(folders)) == (1, 2, 2.5)


def test_simulated_version_1_with_two_controllers_in_one_hierarchy(simulated: Path):
    tree = simulated.parents[1]
    (tree / "both").mkdir()
    cgroups.MOUNTS.write_text(f"cgroup {tree / 'both'} cgroup rw,cpu,cpuacct 0 0\n")
    cgroups.OWN.write_text("3:cpu,cpuacct:/\n")
    folders, warnings = cgroups.make("crl.x", OWN, MOST)
    assert folders == dict.fromkeys(("cpu", "cpuacct"), str(tree / "both" / "crl.x"))
    assert not [warning for warning in warnings if "cpu" in warning]
    assert cgroups.places() == [tree / "both"]
    assert cgroups.remove(folders) == []
    assert cgroups.cpu_s(folders) == 0.0


async def test_simulated_version_2_freezing_waits_for_the_kernels_word(simulated: Path, monkeypatch):
    folders, _ = cgroups.make("crl.x", OWN, MOST)
    assert cgroups.can_freeze(folders)
    events = simulated / ALL / "crl.x" / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    asyncio.get_running_loop().call_later(0.05, events.write_text, "populated 1\nfrozen 1\n")
    assert await cgroups.freeze(folders)
    assert (simulated / ALL / "crl.x" / "cgroup.freeze").read_text() == "1"
    cgroups.thaw(folders)
    assert (simulated / ALL / "crl.x" / "cgroup.freeze").read_text() == "0"
    events.write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr(cgroups, "FREEZE_S", 0.05)
    assert not await cgroups.freeze(folders)


def test_what_is_not_there_becomes_a_warning_and_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nothing = tmp_path / "nothing"
    nothing.touch()
    monkeypatch.setattr(cgroups, "MOUNTS", nothing)
    monkeypatch.setattr(cgroups, "OWN", nothing)
    folders, warnings = cgroups.make("crl.x", OWN, MOST)
    assert folders == {}
    assert warnings == ["no limit of memory", "no limit of pids", "no freezer; stop signals are used"]
    assert (cgroups.oom_kills({}), cgroups.limit_hits({}), cgroups.cpu_s({})) == (0, 0, 0.0)


def test_simulated_version_2_says_beforehand_what_desktops_would_lack(simulated: Path):
    assert cgroups.lacking() == []
    for place in (simulated, simulated / "mine"):
        (place / "cgroup.type").write_text("domain\n")
    assert cgroups.lacking() == []
    (simulated / "cgroup.procs").write_text("17\n")  # now it may hand down no more than it has: memory
    assert cgroups.lacking() == ["pids"]
    (simulated / "cgroup.procs").unlink()  # as in a container whose own group is the root that it sees
    (simulated / "mine" / "cgroup.procs").write_text("17\n")
    (simulated / "mine" / "cgroup.subtree_control").write_text("\n")
    assert cgroups.lacking() == ["memory", "pids"]
    assert (simulated / "mine" / "cgroup.subtree_control").read_text() == "\n"


def test_simulated_desktops_never_add_up_to_more_than_all_may_have(simulated: Path):
    for number in range(2):
        cgroups.make(f"crl.{number}", OWN, MOST)
    with pytest.raises(
        NoRoom, match=f"memory: {200 << 20} beside the {400 << 20} of other desktops would pass {500 << 20}"
    ):
        cgroups.make("crl.2", OWN, MOST)
    with pytest.raises(NoRoom, match="pids: 900 beside the 120"):
        cgroups.make("crl.2", GroupBounds(1 << 20, 900), MOST)
    assert not (simulated / ALL / "crl.2").exists()
    assert cgroups.held() == GroupBounds(400 << 20, 120)
    cgroups.make("crl.2", GroupBounds(100 << 20, 880), MOST)
    assert cgroups.held() == MOST


def test_what_another_user_keeps_to_himself_counts_as_nothing(simulated: Path, monkeypatch: pytest.MonkeyPatch):
    cgroups.make("crl.a", OWN, MOST)

    def refused(_: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    assert cgroups.held() == GroupBounds(0, 0)


def test_simulated_desktops_lie_as_high_as_the_limits_of_this_process_let_them(simulated: Path):
    top = simulated.parent
    for file in ("cgroup.procs", "cgroup.subtree_control"):
        (top / file).touch()
    (top / "cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroups.make("crl.a", OWN, MOST)[0] == {"unified": str(top / ALL / "crl.a")}
    (simulated / "memory.max").write_text(str(1 << 30))
    assert cgroups.make("crl.b", OWN, MOST)[0] == {"unified": str(simulated / ALL / "crl.b")}
    (simulated / "mine" / "pids.max").write_text("300")
    (top / "pids.max").write_text("max")
    assert cgroups.make("crl.c", OWN, MOST)[0] == {"unified": str(simulated / ALL / "crl.c")}
    assert (cgroups.own_limits("memory"), cgroups.own_limits("pids")) == ([1 << 30], [300])


def test_simulated_version_1_keeps_memory_for_sockets(simulated: Path, monkeypatch: pytest.MonkeyPatch):
    tree = simulated.parents[1]
    memory = tree / "memory"
    (memory / ALL / "crl.old").mkdir(parents=True)
    made = Path.mkdir

    def with_files(path: Path, *args: int, exist_ok: bool = False) -> None:
        made(path, *args, exist_ok=exist_ok)
        for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
            if not (path / file).exists():
                (path / file).write_text(str(2**63 - 4096))

    monkeypatch.setattr(Path, "mkdir", with_files)
    cgroups.MOUNTS.write_text(f"cgroup {memory} cgroup rw,memory 0 0\n")
    cgroups.OWN.write_text("3:memory:/\n")
    folders, _ = cgroups.make("crl.x", OWN, MOST)
    group = memory / ALL / "crl.x"
    assert folders == {"memory": str(group)}
    limits = [int((group / file).read_text()) for file in sorted(path.name for path in group.iterdir())]
    assert limits == [cgroups.TCP_BYTES, (200 << 20) - cgroups.TCP_BYTES, (200 << 20) - cgroups.TCP_BYTES]
    assert cgroups.held() == GroupBounds(200 << 20, 0), "what lies in sockets is of a desktop's memory"
    assert (memory / ALL / "memory.limit_in_bytes").read_text() == str(500 << 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make control groups here")
def test_the_group_of_all_desktops_goes_with_the_last_of_them_and_an_empty_one_is_taken_over(apart: str):
    name = f"crl-test-{os.getpid()}"
    first, warnings = cgroups.make(f"{name}-1", GroupBounds(64 << 20, 5), MOST)
    assert [f"no limit of {name}" for name in cgroups.lacking()] == [text for text in warnings if "no limit" in text]
    assert {str(Path(folder).parent) for folder in first.values()} <= {str(place) for place in cgroups.places()}
    second, _ = cgroups.make(f"{name}-2", GroupBounds(64 << 20, 5), MOST)
    everyone = [Path(folder).parent for folder in first.values() if Path(folder).parent.name == apart]
    assert cgroups.remove(first) == []
    assert all(place.is_dir() for place in everyone)
    assert cgroups.remove(second) == []
    for place in everyone:
        place.mkdir(exist_ok=True)  # as one that was killed there left it
    third, _ = cgroups.make(f"{name}-3", GroupBounds(64 << 20, 5), MOST)
    assert [folder for folder in third.values() if Path(folder).parent in everyone] != [] or not everyone
    assert cgroups.remove(third) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="control groups are root's")
def test_groups_that_nothing_runs_in_hold_no_room_for_ever(apart: str, monkeypatch: pytest.MonkeyPatch):
    whole = GroupBounds(MOST.memory_bytes, MOST.processes)
    left, _ = cgroups.make("crl.left", whole, MOST)  # by a program whose folder is not seen from here
    if not any(Path(folder).parent.name == apart for folder in left.values()):
        pytest.skip("no control group of this machine can be limited")
    with pytest.raises(cgroups.NoRoom):
        cgroups.make("crl.new", whole, MOST)
    monkeypatch.setattr(cgroups, "ABANDONED_S", -60.0)
    lives = subprocess.Popen(["sleep", "60"])
    try:
        for folder in set(left.values()):
            (Path(folder) / "cgroup.procs").write_text(str(lives.pid))
        with pytest.raises(cgroups.NoRoom):
            cgroups.make("crl.new", whole, MOST)
    finally:
        lives.kill()
        lives.wait()
    assert cgroups.held() == GroupBounds(0, 0)
    new, _ = cgroups.make("crl.new", whole, MOST)
    assert not any(Path(folder).is_dir() for folder in left.values() if Path(folder).parent.name == apart)
    assert cgroups.remove(new) == []
    assert cgroups.remove(left) == []


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount limited file systems")

LOOK = r"""
import json, os, pty, resource, socket
seen = {"mounts": [], "limits": {}}
for line in open("/proc/self/mounts"):
    _, at, kind, options, *_ = line.split()
    if not os.path.isdir(at):
        continue
    probe = os.path.join(at, ".probe")
    try:
        open(probe, "w").close()
        os.remove(probe)
        writable = True
    except OSError:
        writable = False
    seen["mounts"].append([at, kind, options.split(","), writable])
for name in ("NOFILE", "CORE", "RTPRIO", "NICE", "MSGQUEUE"):
    seen["limits"][name] = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
held = []
try:
    while True:
        held.append(pty.openpty())
except OSError as error:
    seen["terminals"] = [len(held), error.errno]
for pair in held:
    os.close(pair[0]), os.close(pair[1])
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError as error:
    seen["files"] = [len(held), error.errno]
for fd in held:
    os.close(fd)
json.dump(seen, open("seen.part", "w"))
os.rename("seen.part", "seen.json")
"""


async def test_nothing_that_a_guest_may_fill_or_hold_is_without_a_bound(guest: Guest) -> None:
    await guest("launch", argv=["python3", "-c", LOOK])
    assert await guest("settle", timeout_ms=15_000)
    seen = json.loads(await guest.text("seen.json") or "{}")
    spec = DesktopSpec()
    unbounded = [
        (at, kind, options)
        for at, kind, options, writable in seen["mounts"]
        if writable and not any(option.startswith("size=") for option in options)
    ]
    assert unbounded == []
    sizes = {at: int(o[5:-1]) << 10 for at, _, options, _ in seen["mounts"] for o in options if o.startswith("size=")}
    assert {at for at, size in sizes.items() if size > spec.disk_bytes} == set()
    (terminals,) = [options for at, _, options, _ in seen["mounts"] if at == "/dev/pts"][-1:]
    assert f"max={spec.terminals}" in terminals
    assert seen["terminals"][0] <= spec.terminals
    assert seen["files"] == [pytest.approx(spec.open_files, abs=20), 24]  # EMFILE
    assert seen["limits"] == {
        "NOFILE": [spec.open_files] * 2, "CORE": [1, 1], "RTPRIO": [0, 0], "NICE": [0, 0],
        "MSGQUEUE": [MESSAGES_BYTES] * 2,
    }  # fmt: skip


async def test_limits_lie_in_the_group_of_all_desktops(guest: Guest) -> None:
    outside = guest.desktop.outside
    assert outside is not None
    spec, room, held = DesktopSpec(), shares.room(), cgroups.held()
    everyone = {name: Path(folder).parent for name, folder in outside.cgroups.items()}
    for name in cgroups.LIMITED:
        if name in everyone:
            assert everyone[name].name == cgroups.ALL
    if "memory" in everyone:
        assert cgroups.limit_of(everyone["memory"], "memory") == room.memory_mib << 20
        assert spec.memory_bytes <= held.memory_bytes <= room.memory_mib << 20
    if "pids" in everyone:
        assert cgroups.limit_of(everyone["pids"], "pids") == room.processes
        assert spec.processes <= held.processes <= room.processes


async def test_a_desktop_waits_for_those_that_leave_and_is_refused_where_others_stay(
    sandbox: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "memory" in cgroups.lacking():
        pytest.skip("no cgroup limits memory here")
    monkeypatch.setattr(cgroups, "ALL", f"computerrl-test-{os.getpid()}")  # apart from all others of this machine
    spec = DesktopSpec(memory_bytes=256 << 20)
    room = shares.Room(memory_mib=300, processes=9999, open_files=1 << 20, terminals=3000)
    monkeypatch.setattr(shares, "room", lambda: room)
    first = await sandbox.boot(spec)
    with pytest.raises(DesktopFault, match=r"^sandbox_refused: memory: .* desktops of other runs have to end$"):
        await sandbox.boot(spec)
    assert cgroups.held().memory_bytes == spec.memory_bytes
    leaving = sandbox._discard(sandbox._sandboxes[first.name])
    second = await sandbox.boot(spec)
    assert leaving.done()
    await sandbox.destroy(second)
    assert cgroups.held() == (0, 0)
