"""Invariant 8, the desktops' part: whatever instant their owner is killed at, reaping leaves nothing of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actors.desktop.providers.sandbox import ending, owners
from tests.folders import desk_folder

ROOT = Path(__file__).resolve().parent.parent.parent

OWNER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider

async def main():
    provider = await SandboxProvider.start(SandboxConfig(state_dir=sys.argv[2]), sys.argv[3])
    print("started", flush=True)
    desktops = await asyncio.gather(*(provider.boot(DesktopSpec()) for _ in range(2)))
    link = await GuestLink.open(desktops[0], timeout_s=30)
    await link.call("launch", argv=["sh", "-c", "setsid sleep 1000 & sleep 1000"], timeout_s=30)
    if sys.argv[4:] == ["busy"]:
        office = ["soffice", "--calc", "--norestore", "--nologo"]
        await link.call("open_window", argv=office, timeout_ms=40_000, timeout_s=45)
        other = await GuestLink.open(desktops[1], timeout_s=30)
        for argv in (["sh", "-c", "while :; do head -c 1 /dev/zero; done > x"], NAMESPACE):
            await other.call("launch", argv=argv, timeout_s=30)
    await provider.freeze(desktops[1])
    booting = [asyncio.ensure_future(provider.boot(DesktopSpec())) for _ in sys.argv[4:]]
    await asyncio.sleep(float(bool(booting)) / 20)
    print("owns", flush=True)
    await asyncio.Event().wait()

NAMESPACE = ["unshare", "--user", "--pid", "--fork", "setsid", "sh", "-c", "while :; do sleep 0.01; done"]
asyncio.run(main())
"""


# The child that is to become a sandbox stops between its fork and its exec, says its number, and its owner waits.
HALFWAY = """
import os, signal, subprocess
popen, out = subprocess.Popen, os.dup(1)

def stop():
    os.write(out, b"%d\\n" % os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)

def start(argv, **how):
    return popen(argv, **how, **({"preexec_fn": stop} if "bwrap" in argv else {}))

subprocess.Popen = start
"""


# Its sandboxes are not bound to their owner by the kernel, as the last one may not be yet when an owner dies. None is
# frozen: that one could not end itself.
LOOSE = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from actors.desktop.providers.sandbox.provider import SandboxProvider
popen = subprocess.Popen

async def keep_warm(self, desktop):
    pass

def start(argv, **how):
    return popen([word for word in argv if word != "--die-with-parent"], **how)

SandboxProvider.freeze = keep_warm
subprocess.Popen = start
"""


@pytest.fixture
def state_dir() -> Iterator[str]:
    with desk_folder() as folder:
        yield folder
        ending.reap(folder)
        for line in Path("/proc/self/mounts").read_text().splitlines():  # where reaping fails, as it does in a mutant
            if (mounted := line.split()[1]).startswith(f"{folder}/"):
                subprocess.run(["umount", "--lazy", mounted], check=True)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(state_dir: str) -> Iterator[Start]:
    """Starts a process that owns two desktops; killed at the end."""
    owners: list[subprocess.Popen[str]] = []

    def begin(run: str, *doing: str) -> subprocess.Popen[str]:
        script = {("halfway",): HALFWAY, ("loose",): LOOSE}.get(doing, "") + OWNER
        command = [sys.executable, "-c", script, str(ROOT), state_dir, run, *doing]
        owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        owners.append(owner)
        return owner

    yield begin
    for owner in owners:
        owner.kill()
        owner.wait()
        assert owner.stdout is not None
        owner.stdout.close()


def until(owner: subprocess.Popen[str], word: str) -> None:
    assert owner.stdout is not None
    while (line := owner.stdout.readline().strip()) != word:
        assert line, "the owner ended"


def left_of(owner: subprocess.Popen[str]) -> dict[str, list[str]]:
    """What on this machine carries the owner's process id in its name."""
    mark = f".{owner.pid}."
    # Not by glob: groups of other owners go while it looks, which it takes for an error.
    folders = (Path(place, name) for place, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    groups = [folder for folder in folders if folder.name.startswith("crl.") and mark in folder.name]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if mark in line]
    processes = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (os.getpid(), owner.pid):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                # What was only just forked for a sandbox is known by what it has open.
                if mark.encode() in words or any(mark in os.readlink(fd) for fd in (entry / "fd").iterdir()):
                    processes.add(entry.name)
    for group in groups:  # asked for its members: a process that gives its memory back names neither words nor group
        with contextlib.suppress(OSError):
            processes.update((group / "cgroup.procs").read_text().split())
    return {"groups": [str(path) for path in groups], "mounts": mounts, "processes": sorted(processes)}


def folders_of(owner: subprocess.Popen[str], state_dir: str) -> list[str]:
    return [path.name for path in Path(state_dir).iterdir() if f".{owner.pid}." in path.name]


def ends_by_itself(owner: subprocess.Popen[str]) -> None:
    """Nobody reaps: the sandboxes of a killed owner end."""
    give_up = time.monotonic() + 90
    quiet = 0  # one look may miss a process that was forking just then
    while quiet < 5:
        quiet = 0 if left_of(owner)["processes"] else quiet + 1
        assert time.monotonic() < give_up, left_of(owner)
        time.sleep(0.05)


NOTHING = {"groups": [], "mounts": [], "processes": []}


def test_nothing_outlives_the_run_of_a_killed_owner(state_dir: str, start: Start):
    killed, living = start("killed"), start("living")
    for owner in (killed, living):
        until(owner, "owns")
    before = left_of(killed)
    assert before["processes"]
    if os.geteuid() == 0:
        assert len(before["mounts"]) == 4
        assert before["groups"]
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    kept = {key: value for key, value in left_of(living).items() if key != "processes"}

    reaped = ending.reap(state_dir)

    assert left_of(killed) == NOTHING
    assert folders_of(killed, state_dir) == []
    assert reaped.left == []
    assert reaped.folders == 1
    assert {key: value for key, value in left_of(living).items() if key != "processes"} == kept
    assert left_of(living)["processes"]
    assert len(folders_of(living, state_dir)) == 1
    assert ending.reap(state_dir).folders == 0


def test_nothing_outlives_the_run_killed_amid_work(state_dir: str, start: Start):
    """One desktop has a spreadsheet open, one was just frozen while it started programs, one is being booted."""
    owner = start("busy", "busy")
    until(owner, "owns")
    if os.geteuid() == 0:
        assert len(left_of(owner)["mounts"]) >= 2
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    ends_by_itself(owner)
    reaped = ending.reap(state_dir)  # which counts processes of all dead owners on this machine
    assert (reaped.folders, reaped.left) == (1, [])
    assert left_of(owner) == NOTHING
    assert folders_of(owner, state_dir) == []


def test_nothing_outlives_the_run_that_sandboxes_are_not_bound_to(state_dir: str, start: Start):
    owner = start("loose", "loose")
    until(owner, "owns")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    ends_by_itself(owner)
    ending.reap(state_dir)
    assert left_of(owner) == NOTHING


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.15])
def test_nothing_outlives_the_run_killed_while_it_boots(state_dir: str, start: Start, delay_s: float):
    owner = start("booting")
    until(owner, "started")
    time.sleep(delay_s)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert ending.reap(state_dir).left == []
    assert left_of(owner) == NOTHING
    assert folders_of(owner, state_dir) == []


@pytest.fixture
def halfway(start: Start) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A killed owner, and what it had forked for a sandbox, stopped before it started a program."""
    owner = start("halfway", "halfway")
    until(owner, "started")
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    pidfd = os.pidfd_open(child)
    try:
        while Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        yield owner, child
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def test_nothing_outlives_the_run_killed_before_its_sandbox_bears_a_name(state_dir: str, halfway):
    owner, child = halfway
    assert left_of(owner)["processes"] == [str(child)]
    reaped = ending.reap(state_dir)
    assert reaped.processes >= 1
    assert (reaped.folders, reaped.left) == (1, [])
    assert left_of(owner) == NOTHING


def test_nothing_outlives_the_run_that_a_sandbox_begins_after(state_dir: str, halfway):
    """It finds its owner gone."""
    owner, child = halfway
    os.kill(child, signal.SIGCONT)
    ends_by_itself(owner)
    ending.reap(state_dir)
    assert left_of(owner) == NOTHING


def test_nothing_outlives_the_run_that_a_new_run_finds(state_dir: str, start: Start):
    old = start("old")
    until(old, "owns")
    old.send_signal(signal.SIGKILL)
    old.wait()
    new = start("new")
    until(new, "started")
    assert left_of(old) == NOTHING
    assert folders_of(old, state_dir) == []


def test_a_name_tells_its_owner_and_only_the_dead_are_touched(tmp_path: Path):
    owner = owners.SandboxOwner.this_process("runs/2024 #1")
    assert not owner.dead(tmp_path)
    assert owners.owner_of(owner.name) == owner
    assert owners.owner_of(f"{owner.name}.17") == owner
    reborn = msgspec.structs.replace(owner, started=owner.started + 1)
    assert reborn.dead(tmp_path)  # the same process id, another process
    for name in ("", "crl", owner.name + "x", owner.name.replace("crl.", "lrc."), f"{owner.name}.1.2"):
        assert owners.owner_of(name) is None
