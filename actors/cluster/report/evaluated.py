"""Rounds and gains of several seeds together. Pure.

Invariant: seeds are pooled only over rounds of the same weights' step, task set and decoding that all of them played,
and families that are never trained on are no part of it where there are others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

import msgspec

from actors.cluster.evaluation import Compared, Round
from actors.replay.evaluation import Episode, gain, summarise
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


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of the same instances one group of runs solves in its last round than another in its own."""

    decoding: str
    more: str  # labels of the groups
    less: str
    seeds: list[int]  # that both have: they alone are compared
    together: Gain  # from `less` to `more`, instances as clusters


Seeded = Sequence[tuple[int, Played]]


def differences(groups: Mapping[str, Seeded]) -> list[Difference]:
    """The earlier of two groups less the later one, for all pairs of them and every decoding and tasks that they share.

    Only runs of seeds that both have are compared: arms of an experiment begin from the same cloned weights.
    """
    found = []
    for (less, one), (more, two) in combinations(list(groups.items())[::-1], 2):
        seeds = sorted({seed for seed, _ in one} & {seed for seed, _ in two})
        first, last = (_last([run for seed, run in runs if seed in seeds]) for runs in (one, two))
        for kind, before in first.items():
            if kind in last:
                difference = gain(before, last[kind])
                found.append(Difference(decoding=kind[0], more=more, less=less, seeds=seeds, together=difference))
    return found


def _last(runs: Sequence[Played]) -> dict[tuple[str, str], list[Episode]]:
    """Decoding and tasks -> the episodes of the runs' last rounds; only of kinds that all of them have."""
    each = [{(one.decoding, one.task_set): one.judged for one in run.closed()} for run in runs]
    shared = [kind for kind in (each[0] if each else {}) if all(kind in rounds for rounds in each)]
    return {kind: [episode for rounds in each for episode in rounds[kind]] for kind in shared}


def _rounds_of(run: Played, like: Compared) -> tuple[Round, Round] | None:
    for compared in run.gains:
        if (compared.decoding, compared.task_set) == (like.decoding, like.task_set):
            by_name = {one.name: one for one in run.closed()}
            return by_name[compared.before], by_name[compared.after]
    return None


def _same(rounds: Sequence[Round], like: Round) -> Round | None:
    kind = (like.step, like.task_set, like.temperature)
    return next((one for one in rounds if (one.step, one.task_set, one.temperature) == kind), None)
