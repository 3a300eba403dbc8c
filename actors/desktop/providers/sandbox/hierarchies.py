"""Where control groups lie on this machine, version 1 and version 2, and where the desktops' groups may lie.

Invariant: looking changes nothing. All programs of a machine name the same place for the group of all desktops. The
exception is a program whose own groups have a limit in between.
"""

from __future__ import annotations

import os
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
    found: dict[str, Hierarchy] = {}
    for line in OWN.read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else [UNIFIED]:
            if name in mounts:
                top, own = Path(mounts[name]), Path(mounts[name] + path)
                found[name] = Hierarchy(top, own if own.is_dir() else top)
    return found


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

    Groups that limit lie as high as may be, so that all programs of the machine share the group of all desktops, but
    not beyond the nearest limit above this process: what it may not take its desktops may not either.
    """
    if name not in (*LIMITED, UNIFIED):
        return [where.own]
    controllers = LIMITED if name == UNIFIED else (name,)
    found: list[Path] = []
    for group in _chain(where):
        found.insert(0, group)
        if any(limit_of(group, controller) is not None for controller in controllers):
            break
    if name != UNIFIED:
        return found
    # Groups of version 2 that hold processes can't have limited children: beside this process's own, not in it.
    places = [place for place in (found[:-1] or _chain(where)[1:2]) if (place / "cgroup.procs").exists()] + found[-1:]
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
    found = []
    for name, where in mounted().items():
        here = places_of(name, where)
        found += [place / ALL for place in here] if name in (*LIMITED, UNIFIED) else here
    return list(dict.fromkeys(found))


def writable(path: Path) -> bool:
    """Whether this process may write there."""
    return os.access(path, os.W_OK)
