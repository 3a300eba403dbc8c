"""What a soak saw, whether the run gave back what it held, and why the verdict is bad.

Only what carries the run's name or descends from its entry point is counted, so other runs don't matter. The verdict
compares medians over a window, never single looks, and is good only when everything was looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import psutil

from actors.desktop.providers.sandbox.cgroups import CONTROLLERS, MOUNTS
from actors.replay.database.auditing import refuse_unsound
from actors.replay.database.ledger_file import connect
from runtime.errors import ComputerRLError
from tests.bench.report import median
from tests.soak.faults import groups, mark_of
from tests.soak.log import LoggedState


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
    levels: Sequence[Level], first: tuple[float, float], last: tuple[float, float], desktops: int
) -> list[Return]:
    """Every figure's median within two windows (seconds), and whether the later one is back at the earlier.

    `desktops` is how many the run may have up at once by its deploy file.
    """
    all_returns = []
    for name, (factor, more) in TOLERANCE.items():
        before = median([float(getattr(level, name)) for level in levels if first[0] <= level.at_s <= first[1]])
        after = median([float(getattr(level, name)) for level in levels if last[0] <= level.at_s <= last[1]])
        most = max((float(getattr(level, name)) for level in levels), default=0.0)
        full = float(desktops * EACH.get(name, 0))
        allowed = None if before is None else max(before * factor + more, full)
        all_returns.append(Return(name=name, before=before, after=after, most=most, allowed=allowed))
    return all_returns


def look(at_s: float, entry: psutil.Process, run: Path, state_dir: str) -> Level:
    """Count. Blocks for some ten milliseconds. Raises psutil.NoSuchProcess when the entry point is gone."""
    guests = members(run)
    own = {process.pid: process for process in (entry, *entry.children(recursive=True))}
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
    held = things(run, state_dir)
    return Level(
        at_s=at_s, processes=processes, zombies=zombies, guest_processes=len(guests), descriptors=descriptors,
        rss_bytes=rss, desktops=len(held["folders"]), mounts=len(held["mounts"]), cgroups=len(held["cgroups"]),
        folders=folders, run_bytes=size,
    )  # fmt: skip


def members(run: Path) -> set[int]:
    """The processes of the run's desktops."""
    found: set[int] = set()
    for group in groups(run):
        try:
            found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
        except OSError:  # it has just gone
            continue
    return found


def things(run: Path, state_dir: str, root: Path = Path("/"), mounts: Path = MOUNTS) -> dict[str, list[str]]:
    """Everything that carries the run's name on a machine with these folders, and this list of what is mounted."""
    mark, base = mark_of(run), root / Path(state_dir).absolute().relative_to("/")
    owners = [path for path in base.iterdir() if path.name.startswith(mark)] if base.is_dir() else []
    return {
        "mounts": [line.split()[1] for line in mounts.read_text().splitlines() if f"/{mark}" in line],
        "folders": [str(path) for owner in owners for path in _numbered(owner)],
        "owners": [str(path) for path in owners],
        "cgroups": [str(path) for path in groups(run)],
    }


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


NEVER = frozenset({"system_failed", "task_outlives", "shutdown_failed", "desktop_not_removed"})


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that was injected, and what the log made of it."""

    at_s: float
    kind: str
    victim: str
    state: str
    sign: str
    after_s: float
    deadline_s: float


class SoakResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything seen, and the verdict."""

    run: str
    seed: int
    minutes: float
    load_at_start: float
    faults: list[Broken]
    not_injected: int  # planned, but the time was over or there was no victim
    returns: list[Return]
    samples: list[Level]
    rl_steps: int  # optimizer steps of RL: whether the learner was at work while parts broke
    episodes: dict[str, int]  # reasons of ended ones, and faults by cause
    events: dict[str, int]  # warnings and errors of the log by name
    audit: str  # empty, or what the ledger's counts differ in
    left: list[str]  # what outlived the stop
    exit: int | None
    reasons: list[str]  # why the verdict is bad; empty when it is good


def windows(minutes: float) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Seconds from the beginning: the level to come back to, when faults are injected, the level at the end.

    The first is minute 2, before the first fault; short soaks have proportionally shorter ones.
    """
    whole = 60.0 * minutes
    calm, quiet = min(120.0, 0.25 * whole), min(120.0, 0.3 * whole)
    return (calm / 2, calm), (calm, whole - quiet), (whole - quiet / 2, whole)


def bad(
    broken: Sequence[Broken],
    returned: Sequence[Return],
    events: Mapping[str, int],
    left: Sequence[str],
    *,
    wrong: str,
    rl_steps: int,
) -> list[str]:
    """Why the verdict is bad, in words; empty when it is good. `events` are counts by name, `wrong` the audit's."""
    reasons = [
        f"{each.kind} at {each.at_s:.0f} s has no name in the log within {each.deadline_s:g} s"
        for each in broken
        if each.state == LoggedState.UNNAMED
    ]
    if not any(each.state == LoggedState.NAMED for each in broken):
        reasons.append("no fault was injected")
    reasons += [
        f"{each.name} is not back: {_whole(each.before)} before, {_whole(each.after)} after"
        for each in returned
        if not each.back
    ]
    unseen = [each.name for each in returned if each.name in EACH and each.before == 0]
    reasons += [f"{name}: none was seen before the first fault" for name in unseen]
    if not rl_steps:
        reasons.append("the learner made no step of RL: nothing was learned while parts broke")
    reasons += [f"{count} x {event} in the log" for event, count in events.items() if event in NEVER]
    if left:
        reasons.append(f"{len(left)} things outlived the run, the first {left[0]}")
    return [*reasons, wrong] if wrong else reasons


def _whole(value: float | None) -> str:
    return "not seen" if value is None else f"{value:.0f}"


def audited(ledger: Path) -> str:
    """Compare the ledger's counters with its rows; what differs."""
    if not ledger.is_file():
        return "there is no ledger"
    connection, _ = connect(ledger)
    with closing(connection):
        try:
            refuse_unsound(connection, strata=False)
        except ComputerRLError as error:
            return str(error)
    return ""
