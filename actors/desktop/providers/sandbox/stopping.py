"""Holding a desktop still, and what the host has left.

Invariant: when `freeze` returns, no process of the desktop runs, so what it stored holds still while it is read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.abc import Outside
from actors.desktop.providers.sandbox import cgroups
from apis.guest.members import descendants, running

STOP_S = 5.0
_LOOK_S = 0.002


def memory_left() -> float:
    """The host's available memory as a share of all; all of it where the host can't be asked now."""
    try:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:
        return 1.0
    sizes = {words[0]: int(words[1]) for words in lines}
    return sizes["MemAvailable:"] / sizes["MemTotal:"]


def _stop(pid: int, told: set[int]) -> None:
    told.add(pid)
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return


async def _stop_all(init_pid: int, told: set[int]) -> None:
    """Stop signals until two looks in turn find nothing running: one may miss the child of a process that just ended.

    The first process can't fork while it is stopped.
    """
    until = asyncio.get_running_loop().time() + STOP_S
    clean = 0
    while clean < 2:
        left = running(descendants(init_pid), told)
        clean = 0 if left else clean + 1
        for pid in left:
            _stop(pid, told)
        if left and asyncio.get_running_loop().time() > until:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{len(left)} processes still run after {STOP_S:g} s")
        await asyncio.sleep(_LOOK_S)


async def freeze(outside: Outside) -> None:
    """Stop all processes of a desktop for good. Raises DesktopFault.

    The freezer holds all of them at once; then each gets a stop signal, which it obeys before it runs again, and the
    freezer lets go: a frozen process can't be killed, so one whose host dies would outlive it.
    """
    told: set[int] = set()
    try:
        if cgroups.can_freeze(outside.cgroups):
            try:
                await cgroups.freeze(outside.cgroups)
                for pid in descendants(outside.init_pid):  # not the outer process, which is to bury the first one
                    _stop(pid, told)
            finally:
                cgroups.thaw(outside.cgroups)
        await _stop_all(outside.init_pid, told)
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"stopping: {error.strerror}") from error
