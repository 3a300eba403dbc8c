"""What runs that differ in nothing but their seed show together, and how much groups of runs differ. Pure.

Runs are pooled and compared only over closed rounds of the same name, task set and decoding that all of them played.
Families that are never trained on are left out where there are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from actors.cluster.report.run_data import RunFigures
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.statistics import Gain, Rate, RoundEpisode, gain_of_pairs, summarise

Kind = tuple[str, str, int]  # decoding, task set, tokens of an answer at most


class Group(NamedTuple):
    """Runs that differ in nothing but their seed."""

    label: str
    runs: list[RunFigures]


class PooledRound(msgspec.Struct, frozen=True, kw_only=True):
    """Success of some seeds in one round."""

    decoding: str  # with as much more as distinguishes it: `T=1, tasks 46bead08, 96 tokens`
    name: str
    step: int  # of its weights: the first seed's, from which another's may differ by one
    together: Rate  # of all seeds' episodes, instances as clusters: of these seeds, not of others
    each: list[float]  # by seed


class PooledGain(msgspec.Struct, frozen=True, kw_only=True):
    """From the first to the last round that all seeds have played which have played any."""

    decoding: str
    before: str  # names of the rounds
    after: str
    each: list[float]  # by seed
    together: Gain  # over seeds and instances


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How much more of the same instances one group of runs solves than another in the last round that all played."""

    decoding: str
    round: str
    more: str  # labels of the groups
    less: str
    seeds: list[int]  # that both have: they alone are compared
    together: Gain  # from `less` to `more`, over seeds and instances


def grouped(runs: Sequence[RunFigures]) -> list[Group]:
    """The runs by what they share, in the order of the first ones; labels differ."""
    by_key: dict[str, list[RunFigures]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    labels: dict[str, list[RunFigures]] = {}
    for same in by_key.values():
        first = same[0]
        label = first.experiment or (Path(first.file).stem if first.file and len(same) > 1 else first.name)
        while label in labels:
            label += "'"
        labels[label] = same
    return [Group(label, same) for label, same in labels.items()]


def pooled_rounds(runs: Sequence[RunFigures]) -> list[PooledRound]:
    """The rounds that all runs with any have played, by decoding and step."""
    played = [run for run in runs if closed(run)]
    shared = _shared(played)
    points = []
    for kind, names in sorted(shared.items()):
        for name in names:
            rounds = [_of(run, kind)[name] for run in played]
            together = summarise([episode for one in rounds for episode in one.judged]).whole.all
            each = [summarise(one.judged).whole.all.value for one in rounds]
            decoding, tasks, tokens = kind  # with as much more as distinguishes it
            if sum(other[0] == kind[0] for other in shared) > 1:
                decoding += f", tasks {tasks[:8]}"
            if sum(other[:2] == kind[:2] for other in shared) > 1:
                decoding += f", {tokens} tokens"
            point = PooledRound(decoding=decoding, name=name, step=rounds[0].step, together=together, each=each)
            points.append(point)
    return sorted(points, key=lambda point: (point.decoding, point.step))


def pooled_gains(runs: Sequence[RunFigures]) -> list[PooledGain]:
    """The gain of every decoding and task set of which all that have played any have played two rounds."""
    played, gains = [run for run in runs if closed(run)], []
    for kind, names in _shared(played).items():
        pairs = [(of[names[0]], of[names[-1]]) for run in played if (of := _of(run, kind))]
        if any(first.step != last.step for first, last in pairs):
            judged = [(first.judged, last.judged) for first, last in pairs]
            each = [gain_of_pairs([pair]).value for pair in judged]
            together = gain_of_pairs(judged)
            found = PooledGain(decoding=kind[0], before=names[0], after=names[-1], each=each, together=together)
            gains.append(found)
    return gains


def differences(groups: Sequence[Group]) -> list[Difference]:
    """The earlier of two groups less the later one, for all pairs of them and every decoding and tasks that they share.

    Only runs of seeds that both have are compared: their demonstrations and their order of tasks are the same.
    """
    found = []
    for less, more in combinations(list(groups)[::-1], 2):
        sides = [[run for run in group.runs if run.seed is not None and closed(run)] for group in (less, more)]
        seeds = sorted(set.intersection(*({run.seed for run in runs if run.seed is not None} for runs in sides)))
        before, after = ([run for run in runs if run.seed in seeds] for runs in sides)
        for kind, names in _shared([*after, *before]).items():
            pairs = [tuple(_ends(runs, seed, kind, names[-1]) for runs in (before, after)) for seed in seeds]
            together = gain_of_pairs((first, second) for first, second in pairs)
            named = {"decoding": kind[0], "round": names[-1], "more": more.label, "less": less.label}
            found.append(Difference(**named, seeds=seeds, together=together))
    return found


def _ends(runs: Sequence[RunFigures], seed: int, kind: Kind, name: str) -> list[RoundEpisode]:
    return [episode for run in runs if run.seed == seed for episode in _of(run, kind)[name].judged]


def closed(run: RunFigures) -> list[EvaluationRound]:
    """The rounds that were played to their end."""
    return [played for played in run.rounds if played.closed]


def _shared(runs: Sequence[RunFigures]) -> dict[Kind, list[str]]:
    """The names of the rounds that all of `runs` have played, by kind and in the first one's order."""
    shared: dict[Kind, list[str]] = {}
    for played in closed(runs[0]) if runs else []:
        kind = _kind(played)
        if all(played.name in _of(run, kind) for run in runs):
            shared.setdefault(kind, []).append(played.name)
    return shared


def _of(run: RunFigures, kind: Kind) -> dict[str, EvaluationRound]:
    return {played.name: played for played in closed(run) if _kind(played) == kind}


def _kind(played: EvaluationRound) -> Kind:
    return played.decoding, played.task_set, played.max_new_tokens
