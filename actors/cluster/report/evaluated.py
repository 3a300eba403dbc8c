"""Rounds and gains of several seeds together. Pure.

Invariant: runs are pooled and compared only over closed rounds of the same name, task set and decoding that all of them
played. Every statement on such a round names it. A run without a round is left out. Families that are never trained on
are left out where there are others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple, Protocol

import msgspec

from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.statistics import Gain, Rate, RoundEpisode, gain, gain_of_pairs, summarise

Kind = tuple[str, str, int]  # decoding, task set, tokens of an answer at most


class EvaluatedRun(Protocol):
    """A run by its rounds."""

    def closed(self) -> list[EvaluationRound]:
        """The rounds that were played to their end."""


class RoundSuccess(NamedTuple):
    """Success of some seeds in one round."""

    step: int  # of its weights: the first seed's, from which another's may differ by one
    name: str
    rate: Rate
    each: list[float]  # by seed


def pooled(runs: Sequence[EvaluatedRun]) -> dict[str, list[RoundSuccess]]:
    """Decoding -> points in order; one seed's rate, or that of all seeds' episodes with instances as clusters.

    Where one decoding met several task sets, each has its own: `T=1, tasks 46bead08`, and where one of these was played
    with answers of several lengths, each of them: `T=1, tasks 46bead08, 96 tokens`.
    """
    told = [run for run in runs if run.closed()]
    shared = _shared(told)
    found: dict[str, list[RoundSuccess]] = {}
    for kind, names in sorted(shared.items()):
        points = []
        for name in names:
            rounds = [_of(run, kind)[name] for run in told]
            whole = summarise(_judged(rounds)).whole.all
            each = [summarise(one.judged).whole.all.value for one in rounds]
            points.append(RoundSuccess(rounds[0].step, name, whole, each))
        found[_label(kind, shared)] = sorted(points, key=lambda point: point.step)
    return found


class SeedsGain(NamedTuple):
    """From the first to the last round that all seeds have played which have played any."""

    decoding: str
    before: str  # names of the rounds
    after: str
    each: list[Gain]
    together: Gain  # over seeds and instances


def gains(runs: Sequence[EvaluatedRun]) -> list[SeedsGain]:
    """The gain of every decoding and task set of which all that have played any have played two rounds."""
    told, found = [run for run in runs if run.closed()], []
    for kind, names in _shared(told).items():
        pairs = [(of[names[0]], of[names[-1]]) for run in told if (of := _of(run, kind))]
        if any(one.step != two.step for one, two in pairs):
            each = [gain(one.judged, two.judged) for one, two in pairs]
            together = gain_of_pairs((one.judged, two.judged) for one, two in pairs)
            found.append(SeedsGain(kind[0], names[0], names[-1], each, together))
    return found


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of the same instances one group of runs solves than another in the last round that all played."""

    decoding: str
    round: str
    more: str  # labels of the groups
    less: str
    seeds: list[int]  # that both have: they alone are compared
    together: Gain  # from `less` to `more`, over seeds and instances


Seeded = Sequence[tuple[int, EvaluatedRun]]


def differences(groups: Mapping[str, Seeded]) -> list[Difference]:
    """The earlier of two groups less the later one, for all pairs of them and every decoding and tasks that they share.

    Only runs of seeds that both have are compared: arms of an experiment begin from the same cloned weights.
    """
    found = []
    for (less, one), (more, two) in combinations(list(groups.items())[::-1], 2):
        told = [[(seed, run) for seed, run in runs if run.closed()] for runs in (one, two)]
        seeds = sorted(set.intersection(*({seed for seed, _ in runs} for runs in told)))
        before, after = ([(seed, run) for seed, run in runs if seed in seeds] for runs in told)
        for kind, names in _shared([run for _, run in (*after, *before)]).items():
            last = names[-1]
            ends = [[(seed, _of(run, kind)[last]) for seed, run in runs] for runs in (before, after)]
            first, second = ([_judged([one for of, one in rounds if of == s]) for s in seeds] for rounds in ends)
            paired = gain_of_pairs(zip(first, second, strict=True))
            found.append(Difference(decoding=kind[0], round=last, more=more, less=less, seeds=seeds, together=paired))
    return found


def _label(kind: Kind, others: Collection[Kind]) -> str:
    """As much of a kind as tells it from the others."""
    decoding, tasks, tokens = kind
    label = decoding
    if sum(other[0] == decoding for other in others) > 1:
        label += f", tasks {tasks[:8]}"
    if sum(other[:2] == kind[:2] for other in others) > 1:
        label += f", {tokens} tokens"
    return label


def _shared(runs: Sequence[EvaluatedRun]) -> dict[Kind, list[str]]:
    """The names of the rounds that all of `runs` have played, by kind and in the first one's order."""
    found: dict[Kind, list[str]] = {}
    for one in runs[0].closed() if runs else []:
        kind = _kind(one)
        if all(one.name in _of(run, kind) for run in runs):
            found.setdefault(kind, []).append(one.name)
    return found


def _of(run: EvaluatedRun, kind: Kind) -> dict[str, EvaluationRound]:
    return {one.name: one for one in run.closed() if _kind(one) == kind}


def _kind(one: EvaluationRound) -> Kind:
    return one.decoding, one.task_set, one.max_new_tokens


def _judged(rounds: Sequence[EvaluationRound]) -> list[RoundEpisode]:
    return [episode for one in rounds for episode in one.judged]
