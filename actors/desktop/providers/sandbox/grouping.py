"""Makes and removes the control groups of desktops, within the group that holds all desktops of the machine.

Invariant: the limits of the desktops in it never add up to more than its own. So no desktop can take what was promised
to another. A limit that the kernel does not allow becomes a warning of the desktop, never a failed boot. Every folder
made here is returned, so that it is removed with its desktop. The common group goes with the last desktop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from actors.desktop.providers.sandbox.cgroups import number_of
from actors.desktop.providers.sandbox.hierarchies import (
    ALL,
    CONTROLLERS,
    LIMITED,
    UNIFIED,
    V2,
    limit_of,
    mounted,
    places_of,
)

TCP_BYTES = 8 << 20  # of a desktop's memory, for what lies in its sockets: version 1 counts that apart
_MEMORY, _SWAP = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"  # of version 1; the second with memory
_TCP = "memory.kmem.tcp.limit_in_bytes"
_TRIES = 20
ABANDONED_S = 600.0  # without a process: far longer than a desktop takes to its first one


class GroupBounds(NamedTuple):
    """A limit of each kind, in the order of `LIMITED`."""

    memory_bytes: int
    processes: int  # threads count


class NoRoom(Exception):  # noqa: N818 - a state, in the words of the host
    """The desktops that are there leave no room for another one."""


def make(name: str, own: GroupBounds, most: GroupBounds) -> tuple[dict[str, str], list[str]]:
    """Folders for one desktop by controller, with its `own` limits, and warnings for what could not be had.

    Groups that limit lie in one that holds all desktops of the machine, which has `most`. Raises NoRoom where the
    limits of those in it would add up to more.
    """
    making = _Making(name, own, most)
    there = mounted()
    try:
        for top in dict.fromkeys(there[one].top for one in CONTROLLERS if one in there):
            making.add([one for one in CONTROLLERS if one in there and there[one].top == top])
        if "freezer" not in making.folders and UNIFIED in there:
            making.add([UNIFIED])
    except NoRoom:
        remove(making.folders)
        raise
    folders, warnings = making.folders, making.warnings
    if UNIFIED not in folders:
        warnings += [f"no limit of {controller}" for controller in LIMITED if controller not in folders]
    if "freezer" not in folders and UNIFIED not in folders:
        warnings.append("no freezer; stop signals are used")
    return folders, warnings


class _Making:
    """The groups of one desktop while they are made."""

    def __init__(self, name: str, own: GroupBounds, most: GroupBounds) -> None:
        self.name = name
        self.own = own
        self.most = most
        self.folders: dict[str, str] = {}
        self.warnings: list[str] = []

    def add(self, controllers: list[str]) -> None:
        """The group in the hierarchy of `controllers`; version 1 may have several in one. Raises NoRoom."""
        limited = LIMITED if controllers == [UNIFIED] else tuple(one for one in LIMITED if one in controllers)
        refused = []
        for place in places_of(controllers[0], mounted()[controllers[0]]):
            try:
                if limited:
                    folder = self._with_limits(place, limited)
                else:
                    folder = place / self.name
                    folder.mkdir()
            except OSError as error:
                refused.append(f"cgroup {'+'.join(controllers)} in {place}: {error.strerror}")
                continue
            self.folders.update(dict.fromkeys(controllers, str(folder)))
            return
        self.warnings += refused

    def _with_limits(self, place: Path, limited: tuple[str, ...]) -> Path:
        _hand_down(place)
        with _everyone(place) as everyone:
            for group in _abandoned(everyone):
                with suppress(OSError):  # a process that came meanwhile keeps it
                    group.rmdir()
            for controller, wanted, room in zip(LIMITED, self.own, self.most, strict=True):
                if controller in limited and (there := _held(everyone, controller)) + wanted > room:
                    raise NoRoom(f"{controller}: {wanted} beside the {there} of other desktops would pass {room}")
            _hand_down(everyone)
            folder = everyone / self.name
            folder.mkdir()
            self._limit(everyone, limited, self.most, sockets=0)
            self._limit(folder, limited, self.own, sockets=TCP_BYTES if (folder / _TCP).exists() else 0)
            _weigh(everyone)
        return folder

    def _limit(self, group: Path, limited: tuple[str, ...], most: GroupBounds, *, sockets: int) -> None:
        """Write the limits of a group; of its memory so many bytes are for sockets, where they count apart."""
        files: dict[str, int] = {}
        if "memory" in limited:
            old = {_MEMORY: most.memory_bytes - sockets, _SWAP: most.memory_bytes - sockets, _TCP: sockets or None}
            known = {file: value for file, value in old.items() if value is not None and (group / file).exists()}
            files |= known or {"memory.max": most.memory_bytes}
            files |= {"memory.swap.max": 0} if (group / "memory.swap.max").exists() else {}
        files |= {"pids.max": most.processes} if "pids" in limited else {}
        refused: dict[str, str] = {}
        for _ in range(2):  # where both are raised, that of memory may not pass that of memory and swap before
            refused.clear()
            for file, value in files.items():
                try:
                    if number_of(str(group), file) != value:
                        (group / file).write_text(str(value))
                except OSError as error:
                    refused[file] = f"no limit of {file.partition('.')[0]}: cgroup {file}: {error.strerror}"
        self.warnings += [warning for warning in refused.values() if warning not in self.warnings]


@contextmanager
def _everyone(place: Path) -> Iterator[Path]:
    """The group of all desktops in `place`, made if need be and locked, so that no other process makes one in it."""
    folder = place / ALL
    for _ in range(_TRIES):  # the one that was opened may have been removed before it was locked
        folder.mkdir(exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.is_dir() and os.fstat(lock).st_ino == folder.stat().st_ino:
                yield folder
                return
        finally:
            os.close(lock)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


def _abandoned(everyone: Path) -> list[Path]:
    """Groups in which no process has been for so long that no boot can be under way.

    They are left by a program that was killed, where the folder that names its owner is gone or is not seen from here.
    """
    before = time.time() - ABANDONED_S
    found = []
    for group in everyone.iterdir():
        with suppress(OSError):  # removed meanwhile
            if group.is_dir() and group.stat().st_mtime < before and not (group / "cgroup.procs").read_text():
                found.append(group)
    return found


def _held(everyone: Path, controller: str, counts: Callable[[str], bool] = bool) -> int:
    """What the desktops in a group may take together."""
    found, abandoned = 0, set(_abandoned(everyone))
    for group in everyone.iterdir():
        if counts(group.name) and group.is_dir() and group not in abandoned:
            found += limit_of(group, controller) or 0
            found += number_of(str(group), _TCP) if controller == "memory" else 0
    return found


def held(counts: Callable[[str], bool] = bool) -> GroupBounds:
    """What the desktops that are there and whose name `counts` may take together, of all programs of this machine.

    What dead programs left is counted, too, until it is removed or has been without a process for `ABANDONED_S`.
    """
    there = mounted()
    found = dict.fromkeys(LIMITED, 0)
    for controller in LIMITED:
        for name in (controller, UNIFIED):
            for place in places_of(name, there[name]) if name in there else []:
                if (place / ALL).is_dir():
                    found[controller] += _held(place / ALL, controller, counts)
    return GroupBounds(found["memory"], found["pids"])


def _weigh(everyone: Path) -> None:
    """Let the group of all desktops have as much of the processors as they would have beside it."""
    weight = everyone / "cpu.weight"
    if weight.exists():
        weight.write_text(str(min(10_000, 100 * max(1, sum(group.is_dir() for group in everyone.iterdir())))))


def _hand_down(place: Path) -> None:
    """Let groups below `place` have the controllers that it has; where that is not allowed, their limits will tell.

    Version 1 needs nothing of the kind.
    """
    if not (place / "cgroup.controllers").exists():
        return
    own = (place / "cgroup.controllers").read_text().split()
    given = (place / "cgroup.subtree_control").read_text().split()
    for controller in V2:
        if controller in own and controller not in given:
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                return


def remove(folders: dict[str, str]) -> list[str]:
    """Remove emptied groups. Returns the groups that could not be removed."""
    left = []
    for folder in folders.values():
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(folder)
    for everyone in {Path(folder).parent for folder in folders.values()}:
        if everyone.name == ALL:
            _tidy(everyone)
    return left


def _tidy(everyone: Path) -> None:
    """Remove the group of all desktops with the last of them."""
    try:
        lock = os.open(everyone, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rmdir(everyone)
    except FileNotFoundError:
        return
    except OSError:  # there are others
        _weigh(everyone)
    finally:
        os.close(lock)
