"""What a soak found, and why its verdict is bad. Pure but for reading the ledger.

Invariant: a verdict is good only when everything was looked at. A level that was never seen did not come back. A soak
in which no fault was named has shown nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from actors.replay.database.auditing import refuse_unsound
from actors.replay.database.ledger_file import connect
from runtime.errors import ComputerRLError
from tests.soak import levels, named

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
    followed_s: list[float] = []  # when each line came that had to follow
    missing: str = ""  # the first that did not come in time


class SoakResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything seen, and the verdict."""

    run: str
    seed: int
    minutes: float
    load_at_start: float
    faults: list[Broken]
    not_injected: int  # planned, but the time was over or there was no victim
    returns: list[levels.Return]
    samples: list[levels.Level]
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
    returned: Sequence[levels.Return],
    events: Mapping[str, int],
    left: Sequence[str],
    *,
    wrong: str,
    rl_steps: int,
) -> list[str]:
    """Why the verdict is bad, in words; empty when it is good. `events` are counts by name, `wrong` the audit's."""
    reasons = [
        f"{one.kind} at {one.at_s:.0f} s has no name in the log within {one.deadline_s:g} s"
        for one in broken
        if one.state == named.LoggedState.UNNAMED
    ]
    reasons += [f"{one.kind} at {one.at_s:.0f} s: no {one.missing} in the log" for one in broken if one.missing]
    if not any(one.state == named.LoggedState.NAMED for one in broken):
        reasons.append("no fault was injected")
    reasons += [
        f"{one.name} is not back: {_whole(one.before)} before, {_whole(one.after)} after"
        for one in returned
        if not one.back
    ]
    unseen = [one.name for one in returned if one.name in levels.EACH and one.before == 0]
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
