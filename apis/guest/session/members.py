"""Which processes descend from one, which of them may still run, and how they are killed.

The first process of a namespace, or a subreaper, adopts the orphans: it has every process that it started below it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PLUG = "s"  # in the folder of a session's `--door`: the socket that it makes there
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


def _states(pid: int) -> frozenset[str]:
    """The states of a process's threads; none when it has ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return frozenset(_fields(Path("/proc", str(pid), "task", thread, "stat"))[0] for thread in threads)
    except OSError:  # it or a thread has ended
        return frozenset("R" if Path("/proc", str(pid)).exists() else "")


def only(pids: Iterable[int]) -> dict[int, Member]:
    """The members of a known set of processes, parents before their children. No other process is looked at."""
    there: dict[int, Member] = {}
    for pid in pids:
        try:
            parent = int(_fields(Path("/proc", str(pid), "stat"))[1])
        except OSError:  # it has ended
            continue
        if states := _states(pid):
            there[pid] = Member(parent, states)
    ordered: dict[int, Member] = {}
    for pid in sorted(there):
        above = [pid]
        while (parent := there[above[-1]].parent) in there and parent not in ordered and parent not in above:
            above.append(parent)
        ordered.update((each, there[each]) for each in reversed(above))
    return ordered


def descendants(*roots: int) -> dict[int, Member]:
    """`roots` and all that descend from them, in whatever namespaces of their own. Looks at all of /proc."""
    children: dict[int, list[int]] = {}
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = parents[int(entry)] = int(_fields(Path("/proc", entry, "stat"))[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(entry))
    below: dict[int, Member] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in below:  # its number was given away between two looks
            continue
        if states := _states(pid):
            below[pid] = Member(parents.get(pid, 0), states)
        waiting += children.get(pid, [])
    return below


def running(members: Mapping[int, Member], signalled: set[int]) -> list[int]:
    """Those of `members` that may still change something; `signalled` have been given a stop signal.

    A process that waits in vfork for its child to start a program takes no signal before the child has. So while the
    child is stopped it does not read as stopped. It can't run either: the waiting signal stops it first.
    """
    still = {pid for pid, member in members.items() if member.states <= STOPPED}
    children = [pid for pid in still if members[pid].states & {"T", "t"}]
    while children:
        parent = members[children.pop()].parent
        if (
            parent in signalled
            and parent not in still
            and parent in members
            and members[parent].states <= STOPPED | _WAITS
        ):
            still.add(parent)
            children.append(parent)
    return [pid for pid in members if pid not in still]


def kill(pids: Iterable[int], within_s: float) -> set[int]:
    """Kill processes and wait, so long for all of them, until they are gone; those of another user, which go on."""
    watched, beyond = [], set()
    for pid in pids:
        try:
            watched.append(os.pidfd_open(pid))
            signal.pidfd_send_signal(watched[-1], signal.SIGKILL)
        except ProcessLookupError:  # it has ended
            continue
        except PermissionError:
            beyond.add(pid)
            os.close(watched.pop())
    until = time.monotonic() + within_s
    for fd in watched:
        gone = select.poll()
        gone.register(fd, select.POLLIN)
        gone.poll(1e3 * max(0.0, until - time.monotonic()))
        os.close(fd)
    return beyond
