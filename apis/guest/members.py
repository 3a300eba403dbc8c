"""Which processes descend from one, and which of them may still run.

Invariant: only looks. A process can lay off its session, its group, its environment and its parent, but what adopts the
orphans (the first process of a namespace, or a subreaper) finds all that it ever started below it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

NOT_STOPPED = "not stopped"  # how a keeper's answer begins where programs did not stay so
STOPPED = frozenset("TtZX")
ENDED = frozenset("ZX")
_WAITS = frozenset("D")


class Member(NamedTuple):
    """A process: its parent, and the states of its threads as /proc has them."""

    parent: int
    states: frozenset[str]


def _fields(stat: Path) -> list[str]:
    """State, parent, ... but not the name, which is the process's own to choose and need not be text."""
    return stat.read_bytes().rpartition(b")")[2].decode().split()


def descendants(*roots: int) -> dict[int, Member]:
    """`roots` and all that descend from them, in whatever namespaces of their own."""
    children: dict[int, list[int]] = {}
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = parents[int(entry)] = int(_fields(Path("/proc", entry, "stat"))[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(entry))
    found: dict[int, Member] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in found:  # its number was given away between two looks
            continue
        states = set()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                states.add(_fields(Path("/proc", str(pid), "task", thread, "stat"))[0])
        except OSError:  # it or a thread has ended
            states |= {"R"} if Path("/proc", str(pid)).exists() else set()
        if states:
            found[pid] = Member(parents.get(pid, 0), frozenset(states))
        waiting += children.get(pid, [])
    return found


def running(members: Mapping[int, Member], told: set[int]) -> list[int]:
    """Those of `members` that may still change something; `told` have been given a stop signal.

    One that waits in the kernel for its child to start a program (vfork) takes no signal before the child does, so it
    never reaches the state of a stopped one once the child is; nor does it run before it has taken its own.
    """
    still = {pid for pid, member in members.items() if member.states <= STOPPED}
    children = [pid for pid in still if members[pid].states & {"T", "t"}]
    while children:
        parent = members[children.pop()].parent
        if parent in told and parent not in still and parent in members and members[parent].states <= STOPPED | _WAITS:
            still.add(parent)
            children.append(parent)
    return [pid for pid in members if pid not in still]
