"""Rounds and gains of several seeds together. Pure.

Invariant: seeds are pooled only over rounds of the same weights' step, task set and decoding that all of them played,
and families that are never trained on are no part of it where there are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from actors.cluster.evaluation import Compared, Round
from actors.replay.evaluation import gain, summarise
from actors.replay.intervals import Gain, Rate


class Played(Protocol):
    """A run by its rounds."""

    @property
    def gains(self) -> list[Compared]:
        """From the first to the last round of each kind."""

    def closed(self) -> list[Round]:
        """The rounds that were played to their end."""


class Point(NamedTuple):
    """Success of some seeds at one step."""

    step: int
    rate: Rate
    each: list[float]  # by seed


def pooled(runs: Sequence[Played]) -> dict[str, list[Point]]:
    """Decoding -> points in order; one seed's rate, or that of all seeds' episodes with instances as clusters."""
    found: dict[str, list[Point]] = {}
    told = [run for run in runs if run.closed()]
    if not told:
        return found
    for first in told[0].closed():
        alike = [_same(run.closed(), first) for run in told]
        rounds = [one for one in alike if one is not None]
        if len(rounds) == len(told):
            whole = summarise([episode for one in rounds for episode in one.judged]).whole.all
            each = [summarise(one.judged).whole.all.value for one in rounds]
            found.setdefault(first.decoding, []).append(Point(first.step, whole, each))
    return {decoding: sorted(points, key=lambda point: point.step) for decoding, points in sorted(found.items())}


class SeedsGain(NamedTuple):
    """From the first to the last round, over seeds."""

    decoding: str
    each: list[Gain]
    together: Gain  # over instances, every seed's episode of one counted into it


def gains(runs: Sequence[Played]) -> list[SeedsGain]:
    """The gain of every decoding that all runs have one of."""
    told = [run for run in runs if run.gains]
    found = []
    for compared in told[0].gains if told else []:
        pairs = [pair for run in told if (pair := _rounds_of(run, compared)) is not None]
        if len(pairs) == len(told):
            before = [episode for one, _ in pairs for episode in one.judged]
            after = [episode for _, two in pairs for episode in two.judged]
            each = [gain(one.judged, two.judged) for one, two in pairs]
            found.append(SeedsGain(compared.decoding, each, gain(before, after)))
    return found


def _rounds_of(run: Played, like: Compared) -> tuple[Round, Round] | None:
    for compared in run.gains:
        if (compared.decoding, compared.task_set) == (like.decoding, like.task_set):
            by_name = {one.name: one for one in run.closed()}
            return by_name[compared.before], by_name[compared.after]
    return None


def _same(rounds: Sequence[Round], like: Round) -> Round | None:
    kind = (like.step, like.task_set, like.temperature)
    return next((one for one in rounds if (one.step, one.task_set, one.temperature) == kind), None)
