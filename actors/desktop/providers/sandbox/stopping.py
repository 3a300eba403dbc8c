"""Stops a desktop for good, and tells what memory the host has left.

Invariant: when `freeze` returns, no process of the desktop runs, so what it stored holds still while it is read. A
program that the kernel wakes later changes its own files meanwhile. Reading them is bounded whatever they do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from actors.desktop.faults import FaultCause, fault
from actors.desktop.provider import Outside
from actors.desktop.providers.sandbox import cgroups
from apis.guest.session.members import descendants, only, running

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
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return


def _look(outside: Outside, stopped: set[int]) -> tuple[list[int], set[int]]:
    """Who may still run, parents before their children (no shell sees its job stop and goes on with the next); and all.

    A desktop with groups is looked at through them alone, so a host with thousands of processes makes no look slow.
    The groups are read again at the end: a process that forked away from the look and ended is there by its child.
    """
    if not outside.cgroups:
        found = descendants(outside.init_pid)
        return running(found, stopped), set(found)
    found = only(cgroups.members(outside.cgroups))
    newer = cgroups.members(outside.cgroups) - found.keys()
    return [*running(found, stopped), *sorted(newer)], found.keys() | newer


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

    A frozen process can't be killed, so one whose host dies would outlive it; a stopped one can. The freezer is for
    desktops that fork away from the signals: it holds all of them at once, each gets a stop signal, which it obeys
    before it runs again, and the freezer lets go.
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
