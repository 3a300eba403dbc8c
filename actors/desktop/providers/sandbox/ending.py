"""Stops a desktop for good, and removes what a dead owner left.

Invariant: when `freeze` returns, no process of the desktop runs, so what it stored stays as it is while it is read. A
desktop's folder, mount, control groups and processes carry a name that says which process owns them. A process that was
forked for a sandbox and has not yet become it is known by the sandbox's log. So nothing of a live owner is touched, and
nothing of a dead owner is missed, whatever instant it died at.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.provider import Outside
from actors.desktop.providers.sandbox import cgroups, owners, sandbox
from apis.guest.session.members import descendants, kill, only, running

SIGNALS_S = 1.0  # what programs that obey take a fraction of, even where they wait for a disk
STOP_S = 5.0
_LOOK_S = 0.002
_LOOKS_LEAST = 20  # in `STOP_S`: a host that has no time for more has not seen that a program does not obey


def memory_left() -> float:
    """The host's available memory as a share of all; all of it where the host can't be asked now."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:
        return 1.0
    sizes = {words[0]: int(words[1]) for words in lines}
    return sizes["MemAvailable:"] / sizes["MemTotal:"]


def _stop(pid: int, stopped: set[int]) -> None:
    stopped.add(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


def _look(outside: Outside, stopped: set[int]) -> tuple[list[int], set[int]]:
    """Who may still run, parents before their children (no shell sees its job stop and goes on with the next); and all.

    A desktop with groups is looked at through them alone, so a host with thousands of processes makes no look slow.
    The groups are read again at the end: a process that forked away from the look and ended is there by its child.
    """
    if not outside.cgroups:
        processes = descendants(outside.init_pid)
        return running(processes, stopped), set(processes)
    processes = only(cgroups.members(outside.cgroups))
    newer = cgroups.members(outside.cgroups) - processes.keys()
    return [*running(processes, stopped), *sorted(newer)], processes.keys() | newer


async def _all_still(outside: Outside, stopped: set[int], within_s: float) -> int:
    """Stop signals until two looks in turn find the same processes and none of them running: 0; not in time: how often
    it was looked.

    Without groups one look may miss the child of a process that just ended. The first one can't fork while stopped.
    """
    until = asyncio.get_running_loop().time() + within_s
    clean, looks, before = 0, 0, set[int]()
    while clean < 2:
        looks += 1
        left, there = await asyncio.to_thread(_look, outside, stopped)
        clean = 0 if left else clean + 1 if there == before else 1
        before = there
        for pid in left:
            _stop(pid, stopped)
        if left and asyncio.get_running_loop().time() > until:
            return looks
        await asyncio.sleep(_LOOK_S)
    return 0


async def freeze(outside: Outside) -> None:
    """Stop all processes of a desktop for good. Raises DesktopFault.

    Processes get stop signals: a stopped process can be killed, and a frozen one would outlive a host that dies.
    Where processes fork faster than signals reach them, the control group's freezer stops all of them at once. Each
    gets its stop signal then and obeys it as soon as the freezer thaws the group.
    """
    stopped: set[int] = set()
    try:
        if not await _all_still(outside, stopped, SIGNALS_S):
            return
        if cgroups.can_freeze(outside.cgroups):
            try:
                # Not in time: signals alone go on, for what slows the freezer down is the guest's.
                await cgroups.freeze(outside.cgroups)
                for pid in cgroups.members(outside.cgroups):
                    _stop(pid, stopped)
            finally:
                cgroups.thaw(outside.cgroups)
        if looks := await _all_still(outside, stopped, STOP_S):
            left, _ = await asyncio.to_thread(_look, outside, stopped)
            cause = FaultCause.STILL_RUNNING if looks >= _LOOKS_LEAST else FaultCause.HOST_STALLED
            raise fault(cause, f"{len(left)} processes still run after {STOP_S:g} s and {looks} looks")
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"stopping: {error.strerror}") from error


_DEPTH = 8  # of control groups that are searched
_GONE_S = 30.0  # for all that are killed at a time
_UNSEEN = {0}  # what a group says for a member of a process namespace that this one does not see


def _dead(name: str, base: Path) -> bool:
    owner = owners.owner_of(name)
    return owner is not None and owner.dead(base)


def _groups(base: Path) -> Iterator[Path]:
    """Control groups of dead owners, deepest first."""
    for line in cgroups.MOUNTS.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            for folder, folders, _ in os.walk(where, topdown=True):
                yield from (Path(folder, name) for name in folders if _dead(name, base))
                if folder.count("/") - where.count("/") >= _DEPTH:
                    folders.clear()


def _processes(logs: set[str], base: Path) -> Iterator[int]:
    """Processes that were started with the name of a dead owner's desktop, and those about to be."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                named = b"--token" in words and any(_dead(word.decode("utf-8", "replace"), base) for word in words)
                if named or (logs and _writes(Path("/proc", entry), logs)):
                    yield int(entry)
            except OSError:
                continue


def _writes(process: Path, files: set[str]) -> bool:
    """Whether it holds one of `files` open for writing. Raises OSError when it can't be looked at."""
    # Downwards: a child that is about to start a program copies the log to its standard output, then closes the rest.
    for fd in sorted(map(int, os.listdir(process / "fd")), reverse=True):
        try:
            if os.readlink(process / "fd" / str(fd)) not in files:
                continue
            info = (process / "fdinfo" / str(fd)).read_text()
        except FileNotFoundError:  # closed meanwhile
            continue
        flags = next(line.split()[1] for line in info.splitlines() if line.startswith("flags:"))
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            return True
    return False


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed."""

    processes: int
    groups: int
    folders: int
    left: list[str]  # what could not be removed


def reap(state_dir: str) -> Reaped:
    """Kill and remove all that dead owners left below `state_dir` and in the control groups. Blocks; needs no loop."""
    base = Path(state_dir)
    with os.fdopen(owners.locked_file(base), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        groups = list(_groups(base))
        folders = {str(path): str(path) for path in groups}
        cgroups.thaw(folders)
        logs = {
            str(log)
            for folder in base.iterdir()
            if _dead(folder.name, base)
            for log in folder.glob(f"*/disk/{sandbox.LOG}")
        }
        victims: set[int] = set()
        # Looked again after each kill: one that was killed may just have forked.
        while pids := ({*_processes(logs, base)} | cgroups.members(folders)) - victims - _UNSEEN:
            kill(pids, _GONE_S)
            victims |= pids
        left = cgroups.remove(folders)
        gone = 0
        for folder in base.iterdir():
            # An owner that was alive when the folders were listed removes its own before it ends.
            if not _dead(folder.name.removeprefix(owners.NEW), base) or not folder.exists():
                continue
            for name in ("disk", "pts", "trial"):
                for mounted in folder.glob(f"*/{name}"):
                    sandbox.unmount(mounted)
            # While groups stay, so does the folder: by its lock other process namespaces know whose they are.
            if any(folder.name in group for group in left):
                continue
            sandbox.remove_folder(folder)
            gone += 1
    return Reaped(processes=len(victims), groups=len(groups) - len(left), folders=gone, left=left)
