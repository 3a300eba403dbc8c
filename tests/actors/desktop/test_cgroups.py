"""Limits and counters of version 2, whose memory and process controllers no machine of ours has yet given.

The tree here is simulated: plain files laid out as the kernel lays them out. The freezer of version 2 is tested on the
kernel's own, in test_provider_sandbox.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from actors.desktop.providers.sandbox import cgroups
from actors.errors import DesktopFault


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
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)
    monkeypatch.setattr(cgroups, "OWN", own)
    return parent


def test_simulated_version_2_limits_lie_beside_the_own_group(simulated: Path):
    folders, warnings = cgroups.make("crl.x", 200 << 20, 60)
    assert folders == {"unified": str(simulated / "crl.x")}
    assert warnings == []
    assert (simulated / "crl.x" / "memory.max").read_text() == str(200 << 20)
    assert (simulated / "crl.x" / "pids.max").read_text() == "60"
    assert (simulated / "cgroup.subtree_control").read_text() == "+cpu"  # a real one would have added it to the others
    assert cgroups.enter(folders, [17]) == []
    assert cgroups.members(folders) == {17}


def test_simulated_version_2_counters(simulated: Path):
    folders, _ = cgroups.make("crl.x", 1, 1)
    assert (cgroups.oom_kills(folders), cgroups.limit_hits(folders), cgroups.cpu_s(folders)) == (0, 0, 0.0)
    group = simulated / "crl.x"
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n")
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    assert (cgroups.oom_kills(folders), cgroups.limit_hits(folders), cgroups.cpu_s(folders)) == (1, 2, 2.5)


def test_simulated_version_1_with_two_controllers_in_one_hierarchy(simulated: Path):
    tree = simulated.parents[1]
    (tree / "both").mkdir()
    cgroups.MOUNTS.write_text(f"cgroup {tree / 'both'} cgroup rw,cpu,cpuacct 0 0\n")
    cgroups.OWN.write_text("3:cpu,cpuacct:/\n")
    folders, warnings = cgroups.make("crl.x", 1, 1)
    assert folders == dict.fromkeys(("cpu", "cpuacct"), str(tree / "both" / "crl.x"))
    assert not [warning for warning in warnings if "cpu" in warning]
    assert cgroups.places() == [tree / "both"]
    assert cgroups.remove(folders) == []
    assert cgroups.cpu_s(folders) == 0.0


async def test_simulated_version_2_freezing_waits_for_the_kernels_word(simulated: Path, monkeypatch):
    folders, _ = cgroups.make("crl.x", 1, 1)
    assert cgroups.can_freeze(folders)
    events = simulated / "crl.x" / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    asyncio.get_running_loop().call_later(0.05, events.write_text, "populated 1\nfrozen 1\n")
    await cgroups.freeze(folders)
    assert (simulated / "crl.x" / "cgroup.freeze").read_text() == "1"
    cgroups.thaw(folders)
    assert (simulated / "crl.x" / "cgroup.freeze").read_text() == "0"
    events.write_text("populated 1\nfrozen 0\n")
    monkeypatch.setattr(cgroups, "FREEZE_S", 0.05)
    with pytest.raises(DesktopFault, match="not frozen"):
        await cgroups.freeze(folders)


def test_what_is_not_there_becomes_a_warning_and_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nothing = tmp_path / "nothing"
    nothing.touch()
    monkeypatch.setattr(cgroups, "MOUNTS", nothing)
    monkeypatch.setattr(cgroups, "OWN", nothing)
    folders, warnings = cgroups.make("crl.x", 1, 1)
    assert folders == {}
    assert warnings == ["no limit of memory", "no limit of pids", "no freezer; stop signals are used"]
    assert (cgroups.oom_kills({}), cgroups.limit_hits({}), cgroups.cpu_s({})) == (0, 0, 0.0)


def test_simulated_version_2_without_its_controllers_warns(simulated: Path, monkeypatch: pytest.MonkeyPatch):
    written = Path.write_text

    def refusing(path: Path, text: str) -> int:
        if path.name in ("memory.max", "pids.max"):
            raise PermissionError(13, "Permission denied")
        return written(path, text)

    monkeypatch.setattr(Path, "write_text", refusing)
    _, warnings = cgroups.make("crl.x", 1, 1)
    assert [warning.partition(":")[0] for warning in warnings] == ["no limit of memory", "no limit of pids"]


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make control groups here")
def test_groups_of_this_machine_are_made_and_removed():
    folders, warnings = cgroups.make(f"crl-test-{os.getpid()}", 64 << 20, 5)
    assert all(Path(folder).is_dir() for folder in folders.values())
    assert cgroups.remove(folders) == []
    assert not any(Path(folder).exists() for folder in folders.values())
    assert warnings == [] or "unified" not in folders
    assert [f"no limit of {name}" for name in cgroups.lacking()] == [text for text in warnings if "no limit" in text]
    assert {str(Path(folder).parent) for folder in folders.values()} <= {str(place) for place in cgroups.places()}
