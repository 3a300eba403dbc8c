"""How much a run holds, and whether it gives it back. Pure but for reading /proc.

Invariant: only what carries the run's name or descends from its entry point is counted, so other runs don't matter. The
verdict compares medians over a window, never single looks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from actors.desktop.providers.sandbox.hierarchies import CONTROLLERS, MOUNTS, places
from actors.desktop.providers.sandbox.owners import RUN_CHARS
from tests.bench.report import median


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One look."""

    at_s: float  # since the run works
    processes: int  # of the run itself: entry point, hosts, engine
    zombies: int
    guest_processes: int
    descriptors: int  # open files of the run's own processes
    rss_bytes: int  # of the run's own processes
    desktops: int  # folders of desktops
    mounts: int
    cgroups: int
    folders: int  # below the run's folder
    run_bytes: int  # of its files: logs, ledger and segments grow by design


# field -> (factor, on top): at most level x factor + on top counts as "back at the level".
TOLERANCE = {
    "processes": (1.0, 3.0),
    "zombies": (1.0, 2.0),
    "guest_processes": (1.25, 30.0),
    "descriptors": (1.15, 40.0),
    "rss_bytes": (1.25, 200e6),
    "desktops": (1.0, 2.0),
    "mounts": (1.0, 4.0),  # two desktops
    "cgroups": (1.0, 2.0 * len(CONTROLLERS)),  # two desktops, as above
    "folders": (1.0, 6.0),
}


# What one desktop amply has: however few were up at first, all that the deploy file asks for may be up at the end.
EACH = {"guest_processes": 16, "desktops": 1, "mounts": 2, "cgroups": len(CONTROLLERS)}


class Return(msgspec.Struct, frozen=True, kw_only=True):
    """One figure at the beginning and at the end."""

    name: str
    before: float | None  # median of the first window
    after: float | None  # median of the last one
    most: float  # over everything
    allowed: float | None

    @property
    def back(self) -> bool:
        """Whether it came back."""
        return self.after is not None and self.allowed is not None and self.after <= self.allowed


def returns(
    levels: Sequence[Level], first: tuple[float, float], last: tuple[float, float], desktops: int = 0
) -> list[Return]:
    """Every figure's median within two windows (seconds), and whether the later one is back at the earlier.

    `desktops` is how many the run may have up at once by its deploy file.
    """
    found = []
    for name, (factor, more) in TOLERANCE.items():
        before = median([float(getattr(level, name)) for level in levels if first[0] <= level.at_s <= first[1]])
        after = median([float(getattr(level, name)) for level in levels if last[0] <= level.at_s <= last[1]])
        most = max((float(getattr(level, name)) for level in levels), default=0.0)
        full = float(desktops * EACH.get(name, 0))
        allowed = None if before is None else max(before * factor + more, full)
        found.append(Return(name=name, before=before, after=after, most=most, allowed=allowed))
    return found


def mark_of(run: Path) -> str:
    """What the names of the run's desktops, groups and mounts begin with."""
    return f"crl.{run.name[-RUN_CHARS:]}."


class Elsewhere(msgspec.Struct, frozen=True):
    """A machine that shares this kernel, and what a run has there."""

    root: Path  # its folders, as this process reaches them
    mounts: Path  # its list of mounts
    hosts: tuple[int, ...] = ()  # processes of the run that no process of the run's own machine began


HERE = Elsewhere(Path("/"), MOUNTS)


def look(at_s: float, entry_pid: int, run: Path, state_dir: str, machines: Sequence[Elsewhere] = (HERE,)) -> Level:
    """Count on all `machines`. Blocks for some ten milliseconds. Raises psutil.NoSuchProcess when the entry point is
    gone."""
    entry = psutil.Process(entry_pid)
    guests = members(run)
    own = {process.pid: process for process in (entry, *entry.children(recursive=True))}
    for pid in (pid for machine in machines for pid in machine.hosts):
        try:
            host = psutil.Process(pid)
            own |= {process.pid: process for process in (host, *host.children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    processes = zombies = descriptors = rss = 0
    for process in own.values():
        if process.pid in guests:
            continue
        try:
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    zombies += 1
                    continue
                rss += process.memory_info().rss
                descriptors += process.num_fds()
                processes += 1
        except psutil.NoSuchProcess:
            continue
    folders, size = _tree(run)
    held = left(run, state_dir, machines)
    return Level(
        at_s=at_s, processes=processes, zombies=zombies, guest_processes=len(guests), descriptors=descriptors,
        rss_bytes=rss, desktops=len(held["folders"]), mounts=len(held["mounts"]), cgroups=len(held["cgroups"]),
        folders=folders, run_bytes=size,
    )  # fmt: skip


def groups(run: Path) -> list[Path]:
    """The control groups of the run's desktops: a run that this process starts makes them where it would itself."""
    mark = mark_of(run)
    return [path for place in places() if place.is_dir() for path in place.iterdir() if path.name.startswith(mark)]


def members(run: Path) -> set[int]:
    """The processes of the run's desktops."""
    found: set[int] = set()
    for group in groups(run):
        try:
            found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
        except OSError:  # it has just gone
            continue
    return found


def left(run: Path, state_dir: str, machines: Sequence[Elsewhere] = (HERE,)) -> dict[str, list[str]]:
    """Everything on `machines` that carries the run's name."""
    mark = mark_of(run)
    mounts: list[str] = []
    owners: list[Path] = []
    for machine in machines:
        mounts += [line.split()[1] for line in machine.mounts.read_text().splitlines() if f"/{mark}" in line]
        base = machine.root / Path(state_dir).absolute().relative_to("/")
        owners += [path for path in base.iterdir() if path.name.startswith(mark)] if base.is_dir() else []
    folders = [str(path) for owner in owners for path in _numbered(owner)]
    return {"mounts": mounts, "folders": folders, "owners": [str(path) for path in owners],
            "cgroups": [str(path) for path in groups(run)]}  # fmt: skip


def _numbered(owner: Path) -> list[Path]:
    try:
        return [path for path in owner.iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _tree(run: Path) -> tuple[int, int]:
    folders = size = 0
    for folder, below, files in os.walk(run):
        folders += len(below)
        for name in files:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return folders, size
