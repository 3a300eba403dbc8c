"""Runs that differ in nothing but their seed, as `report` tells of them without a page.

Invariant: what is said of several seeds is said only of rounds that all of them have played.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from actors.cluster import output
from actors.cluster.report import evaluated, gather
from actors.cluster.report.read import RunFigures
from actors.cluster.runs import criterion
from actors.replay.statistics import Gain, Rate


class SeedSpread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of several seeds."""

    mean: float
    low: float  # of the lowest seed
    high: float
    each: list[float]


class SeedsRound(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out success of several seeds in one round."""

    name: str
    step: int  # of the first seed's weights
    decoding: str
    success: SeedSpread
    together: Rate  # of all seeds' episodes, instances as clusters: of these seeds, not of others


class SeedsGained(msgspec.Struct, frozen=True, kw_only=True):
    """The paired gain of several seeds from the first to the last round that all of them have played."""

    decoding: str
    before: str  # names of the rounds
    after: str
    gain: SeedSpread
    together: Gain


class Seeds(msgspec.Struct, frozen=True, kw_only=True):
    """Seeds of one deploy file."""

    label: str
    runs: list[str]
    seeds: list[int | None]  # by run; one that repeats is no seed of its own
    rounds: list[SeedsRound]
    gains: list[SeedsGained]


class Brief(NamedTuple):
    """What is needed of a run."""

    name: str
    arm: str
    file: str
    key: str  # shared by the seeds of one deploy file
    seed: int | None
    state: str  # and why
    figures: RunFigures

    @classmethod
    def of(cls, run: gather.RunData) -> Self:
        """Of one that was read whole."""
        state = f"{run.state}: {run.reason}" if run.reason else run.state
        return cls(run.name, run.arm, run.file, run.key, run.seed, state, run.figures)


def together(runs: Sequence[Brief]) -> list[Seeds]:
    """What those of `runs` that share a deploy file say together; empty where no two do."""
    return [_seeds(label, same) for label, same in gather.labelled(runs).items() if len(same) > 1]


def apart(runs: Sequence[Brief]) -> list[evaluated.Difference]:
    """How much the arms among `runs` differ at their ends."""
    seeded = {
        label: [(run.seed, run.figures) for run in same if run.seed is not None]
        for label, same in gather.labelled(runs).items()
    }
    return evaluated.differences(seeded)


def _seeds(label: str, runs: Sequence[Brief]) -> Seeds:
    figures = [run.figures for run in runs]
    rounds = [
        SeedsRound(
            name=point.name, step=point.step, decoding=decoding, success=_spread(point.each), together=point.rate
        )
        for decoding, points in evaluated.pooled(figures).items()
        for point in points
    ]
    gains = [
        SeedsGained(
            decoding=found.decoding, before=found.before, after=found.after, together=found.together,
            gain=_spread([one.value for one in found.each]),
        )
        for found in evaluated.gains(figures)
    ]  # fmt: skip
    seeds = [run.seed for run in runs]
    return Seeds(label=label, runs=[run.name for run in runs], seeds=seeds, rounds=rounds, gains=gains)


def _spread(each: list[float]) -> SeedSpread:
    return SeedSpread(mean=statistics.fmean(each), low=min(each), high=max(each), each=each)


def show(found: Seeds) -> None:
    """Print it."""
    called = gather.called(found.seeds)
    output.line(f"\n{found.label}: {len(found.runs)} {called} ({', '.join(found.runs)})\n")
    rows = []
    for one in found.rounds:
        low, high = one.together.interval
        band = f"{one.success.low:.3f}-{one.success.high:.3f}"
        pooled = f"{one.together.value:.3f} ({one.together.successes}/{one.together.n})"
        rows.append(
            (one.name, one.step, one.decoding, len(one.success.each), f"{one.success.mean:.3f}", band, pooled,
             f"{low:.3f}-{high:.3f}")
        )  # fmt: skip
    if rows:
        output.table(("ROUND", "STEP", "DECODING", called.upper(), "MEAN", "BAND", "TOGETHER", "95 %"), rows)
    else:
        output.line("no evaluation round that all of them have played")
    for gained in found.gains:
        spread, pair = gained.gain, gained.together
        what = f"{gained.decoding}, {gained.before} to {gained.after}, {len(spread.each)} {called}"
        output.prose(
            f"gain      {what}: mean {spread.mean:+.3f}, from {spread.low:+.3f} to {spread.high:+.3f};"
            f" together {pair.value:+.3f} (95 % {pair.low:+.3f} to {pair.high:+.3f}; {criterion.instances(pair)})"
        )
        if said := criterion.spread(pair, called):
            output.line(f"spread    {what}: standard errors in points: {said}")


def show_apart(found: Sequence[evaluated.Difference]) -> None:
    """Print them."""
    rows = [
        (one.decoding, one.round, f"{one.more} - {one.less}", ", ".join(map(str, one.seeds)),
         f"{one.together.after.value:.3f} - {one.together.before.value:.3f}", f"{one.together.value:+.3f}",
         f"{one.together.low:+.3f} to {one.together.high:+.3f}", criterion.instances(one.together),
         criterion.spread(one.together) or "one seed: how seeds vary is not in it")
        for one in found
    ]  # fmt: skip
    if rows:
        output.line()
        output.table(
            ("DECODING", "ROUND", "OF", "SEEDS", "SUCCESS", "DIFFERENCE", "95 %", "OVER", "STANDARD ERRORS IN POINTS"),
            rows,
        )
