"""Control groups of desktops, on version 1 and version 2: where they lie, their limits, counters and the freezer.

Invariant: the limits of the desktops in the group of all desktops never add up to more than its own, so no desktop can
take what was promised to another. A limit that the kernel does not allow becomes a warning of the desktop, never a
failed boot. Every folder made here is returned, so that it is removed with its desktop. A group that is gone holds
nothing and has counted nothing. All programs of a machine name the same place for the group of all desktops, but for
one whose own groups have a limit in between.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mounts")
OWN = Path("/proc/self/cgroup")
UNIFIED = "unified"
ALL = "computerrl"  # the group of all desktops, of every run of this machine
# "cpu" at its default share: else every session that a guest starts weighs as much as a whole desktop.
CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "freezer")
LIMITED = ("memory", "pids")
LIMITS = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}
V2 = ("memory", "pids", "cpu")
_NO_LIMIT = 1 << 60  # version 1 says a number near 2**63 where it has none


class Hierarchy(NamedTuple):
    """Where one is mounted, and this process's own group in it."""

    top: Path
    own: Path


def mounted() -> dict[str, Hierarchy]:
    """By version 1 controller, and under "unified" for version 2."""
    mounts: dict[str, str] = {}
    for line in MOUNTS.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounts[UNIFIED] = where
        elif kind == "cgroup":
            mounts.update({name: where for name in options.split(",") if name in CONTROLLERS})
    hierarchies: dict[str, Hierarchy] = {}
    for line in OWN.read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else [UNIFIED]:
            if name in mounts:
                top, own = Path(mounts[name]), Path(mounts[name] + path)
                hierarchies[name] = Hierarchy(top, own if own.is_dir() else top)
    return hierarchies


def _chain(where: Hierarchy) -> list[Path]:
    """This process's own group and those above it."""
    return [group for group in (where.own, *where.own.parents) if group == where.top or where.top in group.parents]


def limit_of(group: Path, controller: str) -> int | None:
    """The limit of a group, of either version; None where there is none."""
    for file in LIMITS[controller]:
        try:
            text = (group / file).read_text().strip()
        except OSError:
            continue
        return int(text) if text != "max" and int(text) < _NO_LIMIT else None
    return None


def own_limits(controller: str) -> list[int]:
    """The limits of this process's own group and of those above it."""
    there = mounted()
    groups = [group for name in (controller, UNIFIED) if name in there for group in _chain(there[name])]
    return [limit for group in groups if (limit := limit_of(group, controller)) is not None]


def places_of(name: str, where: Hierarchy) -> list[Path]:
    """Where the groups of desktops may lie in a hierarchy, the best place first.

    The highest place is best: then all programs of the machine share the group of all desktops. The nearest limit above
    this process is the highest allowed, because its desktops may not take more than the process itself.
    """
    if name not in (*LIMITED, UNIFIED):
        return [where.own]
    controllers = LIMITED if name == UNIFIED else (name,)
    groups: list[Path] = []
    for group in _chain(where):
        groups.insert(0, group)
        if any(limit_of(group, controller) is not None for controller in controllers):
            break
    if name != UNIFIED:
        return groups
    # Groups of version 2 that hold processes can't have limited children: beside this process's own, not in it.
    places = [place for place in (groups[:-1] or _chain(where)[1:2]) if (place / "cgroup.procs").exists()] + groups[-1:]
    return sorted(places, key=lambda place: not gives(place).issuperset(LIMITED))


def gives(place: Path) -> set[str]:
    """The controllers that a version 2 group made in `place` would have."""
    if not writable(place):
        return set()
    given = set((place / "cgroup.subtree_control").read_text().split())
    # Only the root of all may hand down controllers while it has processes itself.
    free = not (place / "cgroup.type").exists() or not (place / "cgroup.procs").read_text().strip()
    if free and writable(place / "cgroup.subtree_control"):
        given.update((place / "cgroup.controllers").read_text().split())
    return given


def lacking() -> list[str]:
    """The limits that desktops would be without, by controller."""
    there = mounted()
    unified = set[str]()
    if "freezer" not in there and UNIFIED in there:
        unified = gives(places_of(UNIFIED, there[UNIFIED])[0])
    return [
        name
        for name in LIMITED
        if name not in unified
        and not (name in there and any(writable(place) for place in places_of(name, there[name])))
    ]


def places() -> list[Path]:
    """The folders in which this process may make desktops' groups."""
    folders = []
    for name, where in mounted().items():
        here = places_of(name, where)
        folders += [place / ALL for place in here] if name in (*LIMITED, UNIFIED) else here
    return list(dict.fromkeys(folders))


def writable(path: Path) -> bool:
    """Whether this process may write there."""
    return os.access(path, os.W_OK)


FREEZE_S = 5.0
NEARLY_BYTES = 2 << 20  # of a limit: what a process may ask for at once


def enter(folders: dict[str, str], pids: list[int]) -> list[str]:
    """Move processes into the groups; warnings for what did not work."""
    warnings = []
    for controller, folder in folders.items():
        try:
            for pid in pids:
                Path(folder, "cgroup.procs").write_text(str(pid))
        except OSError as error:
            warnings.append(f"cgroup {controller}: {error.strerror}")
    return warnings


def members(folders: dict[str, str]) -> set[int]:
    """Processes in any of the groups."""
    pids: set[int] = set()
    for folder in folders.values():
        try:
            pids.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
        except FileNotFoundError:
            continue
    return pids


def number_of(folder: str | None, file: str, key: str = "") -> int:
    """A counter of a group: the whole file, or the value behind `key`; 0 where there is none."""
    if folder is None:
        return 0
    try:
        text = Path(folder, file).read_text()
    except OSError:
        return 0
    if not key:
        return int(text) if text.strip().isdigit() else 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), 0)


def processes_refused(folders: dict[str, str]) -> int:
    """Times that the groups could not have another process within their own limit."""
    return number_of(folders.get("pids"), "pids.events", "max") or number_of(folders.get(UNIFIED), "pids.events", "max")


def oom_kills(folders: dict[str, str]) -> int:
    """Processes of the groups that the kernel killed for memory."""
    return number_of(folders.get("memory"), "memory.oom_control", "oom_kill") or number_of(
        folders.get(UNIFIED), "memory.events", "oom_kill"
    )


def limit_hits(folders: dict[str, str]) -> int:
    """Times that the groups could not get memory within their own limit; once for all where the kernel counts none."""
    old = folders.get("memory")
    # Version 1 does not count what its limit of memory and swap together refused: it says how far they came.
    most, came = (number_of(old, f"memory.memsw.{name}_in_bytes") for name in ("limit", "max_usage"))
    hits = number_of(old, "memory.failcnt") + (0 < most <= came + NEARLY_BYTES)
    return hits or number_of(folders.get(UNIFIED), "memory.events", "oom")


def cpu_s(folders: dict[str, str]) -> float:
    """Processor seconds that the groups have used."""
    nanoseconds = number_of(folders.get("cpuacct"), "cpuacct.usage")
    return nanoseconds / 1e9 or number_of(folders.get(UNIFIED), "cpu.stat", "usage_usec") / 1e6


def can_freeze(folders: dict[str, str]) -> bool:
    """Whether the groups have a freezer."""
    return "freezer" in folders or UNIFIED in folders


def thaw(folders: dict[str, str]) -> None:
    """Let frozen processes run on, so that they can die. A group that is gone is no error."""
    for folder in folders.values():
        for file, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            try:
                with Path(folder, file).open("r+") as state:
                    state.write(value)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise


async def freeze(folders: dict[str, str]) -> bool:
    """Hold all processes of the groups; False when the kernel does not get there in time. Raises OSError."""
    if "freezer" in folders:
        file, wanted, done = Path(folders["freezer"], "freezer.state"), "FROZEN", "FROZEN"
        state = file
    else:
        file, wanted, done = Path(folders[UNIFIED], "cgroup.freeze"), "1", "frozen 1"
        state = Path(folders[UNIFIED], "cgroup.events")
    loop = asyncio.get_running_loop()
    until = loop.time() + FREEZE_S
    file.write_text(wanted)
    while done not in state.read_text():  # version 1 has no event for its end
        if loop.time() > until:
            return False
        await asyncio.sleep(0.002)
        if "freezer" in folders:
            file.write_text(wanted)  # a process that was just forking may need a second call
    return True


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
        for top in dict.fromkeys(there[each].top for each in CONTROLLERS if each in there):
            making.add([each for each in CONTROLLERS if each in there and there[each].top == top])
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
        limited = LIMITED if controllers == [UNIFIED] else tuple(name for name in LIMITED if name in controllers)
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
    abandoned = []
    for group in everyone.iterdir():
        with suppress(OSError):  # removed meanwhile
            if group.is_dir() and group.stat().st_mtime < before and not (group / "cgroup.procs").read_text():
                abandoned.append(group)
    return abandoned


def _held(everyone: Path, controller: str, counts: Callable[[str], bool] = bool) -> int:
    """What the desktops in a group may take together."""
    total, abandoned = 0, set(_abandoned(everyone))
    for group in everyone.iterdir():
        if counts(group.name) and group.is_dir() and group not in abandoned:
            total += limit_of(group, controller) or 0
            total += number_of(str(group), _TCP) if controller == "memory" else 0
    return total


def held(counts: Callable[[str], bool] = bool) -> GroupBounds:
    """What the desktops that are there and whose name `counts` may take together, of all programs of this machine.

    What dead programs left is counted, too, until it is removed or has been without a process for `ABANDONED_S`.
    A group that this process may not read counts as 0.
    """
    there = mounted()
    sums = dict.fromkeys(LIMITED, 0)
    for controller in LIMITED:
        for name in (controller, UNIFIED):
            for place in places_of(name, there[name]) if name in there else []:
                with suppress(PermissionError):  # a group that is another user's alone
                    if (place / ALL).is_dir():
                        sums[controller] += _held(place / ALL, controller, counts)
    return GroupBounds(sums["memory"], sums["pids"])


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
