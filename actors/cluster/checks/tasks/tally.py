"""Counts what oracles did, and judges it.

Invariant: pure. A fault never counts as an episode that was played, and a family with no play at all is not good.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from actors.replay.statistics import Rate

SOLVED_LEAST = 0.98  # of what was played, per family and route
FAULTS_MOST = 0.02  # of all episodes begun


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One task as an oracle played it."""

    task: str
    family: str
    split: str
    route: str
    played: bool  # False: every try was broken by the infrastructure
    success: bool
    reason: str
    detail: str
    steps: int
    wall_s: float
    cpu_s: float
    faults: list[str]  # their causes
    prompt_chars: int  # of the longest prompt
    last: list[str] = []  # of a failure: what was done last and what came of it


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one family, split and route."""

    family: str
    split: str
    route: str
    trained: bool
    wanted: int
    played: int
    solved: int
    interval: tuple[float, float]  # Wilson, 95 %
    faults: int
    steps: float | None  # mean
    wall_s: float | None  # median
    cpu_s: float | None  # median, of the guest's processes
    prompt_chars: int

    @property
    def share(self) -> float:
        """Solved of those played."""
        return self.solved / self.played if self.played else 0.0

    @property
    def good(self) -> bool:
        """Enough of what was played is solved."""
        return self.played > 0 and self.share >= SOLVED_LEAST


def row(family: str, split: str, route: str, results: Iterable[Result], *, trained: bool, wanted: int) -> Row:
    """The figures of those of `results` that belong to this family, split and route."""
    mine = [found for found in results if (found.family, found.split, found.route) == (family, split, route)]
    played = [found for found in mine if found.played]
    rate = Rate(sum(found.success for found in played), len(played))
    return Row(
        family=family,
        split=split,
        route=route,
        trained=trained,
        wanted=wanted,
        played=rate.n,
        solved=rate.successes,
        interval=rate.interval,
        faults=sum(len(found.faults) for found in mine),
        steps=statistics.fmean(found.steps for found in played) if played else None,
        wall_s=statistics.median(found.wall_s for found in played) if played else None,
        cpu_s=statistics.median(found.cpu_s for found in played) if played else None,
        prompt_chars=max((found.prompt_chars for found in mine), default=0),
    )


def complaints(rows: Iterable[Row]) -> list[str]:
    """Why the suite is not good; empty when it is."""
    found = []
    faults = episodes = 0
    for one in rows:
        faults += one.faults
        episodes += one.played + one.faults
        if not one.played:
            found.append(f"{one.family} {one.split} by {one.route}: nothing was played")
        elif one.played < one.wanted:
            found.append(f"{one.family} {one.split} by {one.route}: {one.played} of {one.wanted} played")
        elif not one.good:
            found.append(
                f"{one.family} {one.split} by {one.route}: {one.solved} of {one.played} solved,"
                f" {SOLVED_LEAST:.0%} is the least"
            )
    if episodes and faults / episodes > FAULTS_MOST:
        found.append(f"{faults} faults in {episodes} episodes begun: {FAULTS_MOST:.0%} is the most")
    return found
