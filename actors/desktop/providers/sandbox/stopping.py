"""Holding a desktop still, and what the host has left.

Invariant: when `freeze` returns, no process of the desktop runs, so what it stored holds still while it is read.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from actors.desktop.faults import FaultCause, fault
from actors.desktop.providers.abc import Outside
from actors.desktop.providers.sandbox import cgroups

STOP_S = 5.0
_LOOK_S = 0.002
_STOPPED = frozenset("TtZX")
_WAITS = frozenset("D")


class Member(msgspec.Struct, frozen=True):
    """A process of a desktop: its parent, and the states of its threads as /proc has them."""

    parent: int
    states: frozenset[str]


def memory_left() -> float:
    """The host's available memory as a share of all."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = {words[0]: int(words[1]) for words in lines}
    return sizes["MemAvailable:"] / sizes["MemTotal:"]


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()  # state, parent, ...


def _members(init_pid: int) -> dict[int, Member]:
    """`init_pid` and all that descend from it, in whatever namespaces of their own: none can leave its first one."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(_fields(Path("/proc", entry, "stat"))[1]), []).append(int(entry))
            except OSError:  # it has ended
                continue
    found: dict[int, Member] = {}
    waiting = [(os.getpid(), init_pid)]
    while waiting:
        parent, pid = waiting.pop()
        states = set()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                states.add(_fields(Path("/proc", str(pid), "task", thread, "stat"))[0])
        except OSError:  # it or a thread has ended
            states |= {"R"} if Path("/proc", str(pid)).exists() else set()
        if states:
            found[pid] = Member(parent, frozenset(states))
        waiting += [(pid, child) for child in children.get(pid, [])]
    return found


def running(members: Mapping[int, Member], told: set[int]) -> list[int]:
    """Those of a desktop's processes that may still change something; `told` have been given a stop signal.

    One that waits in the kernel for its child to start a program (vfork) takes no signal before the child does, so it
    never reaches the state of a stopped one once the child is; nor does it run before it has taken its own.
    """
    still = {pid for pid, member in members.items() if member.states <= _STOPPED}
    children = [pid for pid in still if members[pid].states & {"T", "t"}]
    while children:
        parent = members[children.pop()].parent
        if parent in told and parent not in still and parent in members and members[parent].states <= _STOPPED | _WAITS:
            still.add(parent)
            children.append(parent)
    return [pid for pid in members if pid not in still]


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
        left = running(_members(init_pid), told)
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
                for pid in _members(outside.init_pid):  # not the outer process, which is to bury the first one
                    _stop(pid, told)
            finally:
                cgroups.thaw(outside.cgroups)
        await _stop_all(outside.init_pid, told)
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"stopping: {error.strerror}") from error
