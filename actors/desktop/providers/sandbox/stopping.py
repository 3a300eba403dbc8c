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

STOP_S = 5.0
_STOPPED = {"T", "t", "Z", "X"}


def memory_left() -> float:
    """The host's available memory as a share of all."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {words[0]: int(words[1]) for words in lines}
    return sizes["MemAvailable:"] / sizes["MemTotal:"]


def _members(init_pid: int) -> dict[int, str]:
    """Processes in the namespace that `init_pid` is the first of, with their states."""
    space = os.readlink(f"/proc/{init_pid}/ns/pid")
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") == space:
                    found[int(entry)] = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # it ended, or is of another user
                continue
    return found


def _stop(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return


async def _stop_all(init_pid: int) -> None:
    """Stop signals until a whole look finds nothing running; the first process can't fork while it is stopped."""
    until = asyncio.get_running_loop().time() + STOP_S
    while running := [pid for pid, state in _members(init_pid).items() if state not in _STOPPED]:
        for pid in running:
            _stop(pid)
        if asyncio.get_running_loop().time() > until:
            raise fault(FaultCause.OUTSIDE_VIEW, f"{len(running)} processes still run after {STOP_S:g} s")
        await asyncio.sleep(0.002)


async def freeze(outside: Outside) -> None:
    """Stop all processes of a desktop for good. Raises DesktopFault.

    The freezer holds all of them at once; then each gets a stop signal, which it obeys before it runs again, and the
    freezer lets go: a frozen process can't be killed, so one whose host dies would outlive it.
    """
    try:
        if cgroups.can_freeze(outside.cgroups):
            try:
                await cgroups.freeze(outside.cgroups)
                for pid in _members(outside.init_pid):  # not the outer process, which is to bury the first one
                    _stop(pid)
            finally:
                cgroups.thaw(outside.cgroups)
        await _stop_all(outside.init_pid)
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"stopping: {error.strerror}") from error
