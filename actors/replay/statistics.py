"""Rates and gains with 95 % intervals, and what an evaluation round says. Pure.

A fault counts as a failure among all episodes and is left out of the rate without faults.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from math import comb
from statistics import fmean

import msgspec

Z95 = 1.959964  # two-sided 95 % quantile of the normal distribution
Tally = tuple[int, int]  # successes and episodes of one instance


class Rate(msgspec.Struct, frozen=True):
    """Successes of `n` episodes with Wilson's 95 % interval (E. B. Wilson, JASA 22, 1927)."""

    successes: int
    n: int
    effective_n: float = 0.0  # independent episodes that `n` are worth; 0: all of them

    @property
    def value(self) -> float:
        return self.successes / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.value, self.effective_n or self.n)


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a share `p` seen in `n` independent trials."""
    if not n:
        return 0.0, 1.0
    z2 = Z95 * Z95
    middle, spread = p + z2 / (2 * n), Z95 * math.sqrt(max(0.0, p * (1 - p) / n + z2 / (4 * n * n)))
    return min(p, max(0.0, (middle - spread) / (1 + z2 / n))), max(p, min(1.0, (middle + spread) / (1 + z2 / n)))


def rate(tallies: Sequence[Tally]) -> Rate:
    """The rate over instances.

    Episodes of one instance resemble each other, so they count for less than as many of different ones: by the design
    effect of clusters (L. Kish, Survey Sampling, 1965), with the variance of the ratio estimator. Of one episode per
    instance this is Wilson's interval itself.
    """
    successes, n, instances = sum(won for won, _ in tallies), sum(played for _, played in tallies), len(tallies)
    if n <= instances or instances < 2:
        return Rate(successes, n)
    p = successes / n
    spread = sum((won - p * played) ** 2 for won, played in tallies) * instances / (instances - 1) / (n * n)
    worth = p * (1 - p) / spread if spread else float(n)
    # All instances alike in every episode says nothing of how much their episodes resemble each other.
    return Rate(successes, n, float(instances) if p in (0.0, 1.0) else min(float(n), max(float(instances), worth)))


def pass_at(tallies: Sequence[Tally], k: int) -> float | None:
    """The chance that at least one of `k` episodes of an instance succeeds, mean over instances.

    The unbiased estimator 1 - C(n - c, k) / C(n, k) of M. Chen et al., Evaluating Large Language Models Trained on
    Code (arXiv 2107.03374), over the instances with at least `k` episodes; None where there is none.
    """
    counted = [(won, played) for won, played in tallies if played >= k]
    if not counted:
        return None
    return sum(1 - comb(played - won, k) / comb(played, k) for won, played in counted) / len(counted)


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two rounds over the same instances, with a 95 % interval."""

    before: Rate
    after: Rate
    value: float
    low: float
    high: float
    instances: int  # played in both
    left_out: int  # because of a fault in one of them, of several seeds in any
    spread: VarianceParts | None = None  # of several seeds, which then are part of the interval


def paired(before: Sequence[Tally], after: Sequence[Tally], left_out: int = 0) -> Gain:
    """The gain from `before` to `after`, which hold the same instances in the same order.

    Square-and-add of the two rates' Wilson intervals with the correlation over instances: method 10 of
    R. G. Newcombe, Statistics in Medicine 17, 1998, for paired shares. With several episodes per instance the shares'
    intervals are those of `rate` and the correlation is that of the instances' means.
    """
    first, second = rate(before), rate(after)
    value = second.value - first.value
    (low_1, high_1), (low_2, high_2) = first.interval, second.interval
    if not before:
        return Gain(before=first, after=second, value=0.0, low=-1.0, high=1.0, instances=0, left_out=left_out)
    r = _correlation(before, after)
    down, up = (second.value - low_2, high_1 - first.value), (high_2 - second.value, first.value - low_1)
    return Gain(
        before=first,
        after=second,
        value=value,
        low=max(-1.0, value - _added(*down, r)),
        high=min(1.0, value + _added(*up, r)),
        instances=len(before),
        left_out=left_out,
    )


def _added(a: float, b: float, r: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * r * a * b + b * b))


def _correlation(before: Sequence[Tally], after: Sequence[Tally]) -> float:
    """Of the instances' means, a positive one made smaller by Newcombe's continuity correction."""
    n = len(before)
    x, y = ([won / played for won, played in tallies] for tallies in (before, after))
    mean_x, mean_y = sum(x) / n, sum(y) / n
    together = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / n
    if together > 0:
        most = max(played for _, played in (*before, *after))
        together = max(0.0, together - 1 / (2 * n * most))
    alone = math.sqrt(sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)) / n
    return together / alone if alone else 0.0


_PARTS = 200  # of Simpson's rule, an even number


class VarianceParts(msgspec.Struct, frozen=True, kw_only=True):
    """Standard errors of a mean by what varies, as parts of 1; their squares add up to its variance."""

    seeds: float
    instances: float
    rest: float  # a seed's luck with an instance, and an episode's
    freedom: float  # degrees of freedom of all together
    half: float  # half of the 95 % interval's width


def spread(cells: Sequence[Sequence[float]]) -> VarianceParts:
    """Of a table with a row per seed and a column per instance, two of each at least. Raises ValueError for fewer."""
    seeds, instances = len(cells), min(map(len, cells), default=0)
    if min(seeds, instances) < 2 or any(len(row) != instances for row in cells):
        raise ValueError(f"a table of {seeds} seeds and {instances} instances has nothing to vary")
    rows, columns = [fmean(row) for row in cells], [fmean(column) for column in zip(*cells, strict=True)]
    mean, size = fmean(rows), seeds * instances
    of_seeds = instances * sum((row - mean) ** 2 for row in rows) / (seeds - 1)
    of_instances = seeds * sum((column - mean) ** 2 for column in columns) / (instances - 1)
    left = ((x - row - column + mean) ** 2 for row, of in zip(rows, cells, strict=True)
            for x, column in zip(of, columns, strict=True))  # fmt: skip
    of_rest = sum(left) / ((seeds - 1) * (instances - 1))
    more_seeds, more_instances = max(0.0, of_seeds - of_rest), max(0.0, of_instances - of_rest)
    whole = more_seeds + more_instances + of_rest
    if whole <= 1e-18:
        return VarianceParts(seeds=0.0, instances=0.0, rest=0.0, freedom=float(seeds - 1), half=0.0)
    parts = [(of_seeds, seeds - 1)] * (more_seeds > 0) + [(of_instances, instances - 1)] * (more_instances > 0)
    if len(parts) != 1:  # where one component alone is above 0, the sum is that mean square
        parts.append((of_rest, (seeds - 1) * (instances - 1)))
    freedom = max(float(seeds - 1), whole**2 / sum(square**2 / free for square, free in parts))
    part = [math.sqrt(of / size) for of in (more_seeds, more_instances, of_rest)]
    half = quantile95(freedom) * math.sqrt(whole / size)
    return VarianceParts(seeds=part[0], instances=part[1], rest=part[2], freedom=freedom, half=half)


@functools.lru_cache(256)
def quantile95(freedom: float) -> float:
    """The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom, 1 or more, whole or not."""
    low, high = 0.0, math.pi / 2
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < 0.95 else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _inside(angle: float, freedom: float) -> float:
    """The share of Student's t within sqrt(freedom) tan(angle) of 0.

    With t = sqrt(freedom) tan(a) the density is that of cos(a) ** (freedom - 1), which is integrated by Simpson's rule.
    """
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    at = [math.cos(angle * n / _PARTS) ** (freedom - 1) for n in range(_PARTS + 1)]
    return angle / (3 * _PARTS) * (at[0] + at[-1] + 4 * sum(at[1:-1:2]) + 2 * sum(at[2:-1:2])) / whole


class RoundEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of a round. A fault has no outcome of its own: success is False and feasible True."""

    task: str
    success: bool = False
    feasible: bool = True
    fault: bool = False
    reason: str = ""  # of its outcome
    score: float | None = None  # of the end state, 0 to 1; None: it was not judged
    token: int = 0  # of its reservation

    @property
    def family(self) -> str:
        return self.task.partition("/")[0]


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Success by denominator."""

    all: Rate  # every episode; faults are failures
    feasible: Rate  # without those that were found infeasible; faults are failures
    without_faults: Rate


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A round. `trained` and `untrained` split it by whether a family is trained on."""

    instances: int
    episodes: int
    faults: int
    whole: Rates
    trained: Rates
    untrained: Rates
    families: dict[str, Rates]
    pass_at: dict[int, float]  # k -> pass@k of the episodes without faults


def summarise(episodes: Iterable[RoundEpisode], untrained: Collection[str] = ()) -> Summary:
    """The summary of a round; `untrained` names the families that are never trained on."""
    listed = list(episodes)
    played = [episode for episode in listed if not episode.fault]
    each = _tallies(played)
    return Summary(
        instances=len({episode.task for episode in listed}),
        episodes=len(listed),
        faults=len(listed) - len(played),
        whole=_rates(listed),
        trained=_rates([episode for episode in listed if episode.family not in untrained]),
        untrained=_rates([episode for episode in listed if episode.family in untrained]),
        families={
            family: _rates([episode for episode in listed if episode.family == family])
            for family in sorted({episode.family for episode in listed})
        },
        pass_at=_passes(list(each.values())),
    )


def gain(before: Sequence[RoundEpisode], after: Sequence[RoundEpisode]) -> Gain:
    """The paired gain over the instances that both rounds played without a fault; how many were left out is part of it.

    An instance of which a fault took one episode would weigh otherwise in one round than in the other.
    """
    return gain_of_pairs([(before, after)])


def gain_of_pairs(pairs: Iterable[tuple[Sequence[RoundEpisode], Sequence[RoundEpisode]]]) -> Gain:
    """The same of several pairs of rounds, one per seed: an instance is left out that one of them lacks.

    Where there are several, seeds are as drawn as instances. The interval is never narrower than that of the instances
    alone, which knows that shares end at 0 and 1.
    """
    listed = [(list(before), list(after)) for before, after in pairs]
    every = [episode for pair in listed for episode in (*pair[0], *pair[1])]
    tasks = {episode.task for episode in every}
    sound = tasks - {episode.task for episode in every if episode.fault}
    each = [[_tallies(e for e in episodes if e.task in sound) for episodes in pair] for pair in listed]
    both = sorted(set.intersection(*(set(tallies) for pair in each for tallies in pair))) if each else []
    before, after = (_summed(both, [pair[side] for pair in each]) for side in (0, 1))
    whole = paired(before, after, len(tasks) - len(both))
    if len(each) < 2 or len(both) < 2:
        return whole
    parts = spread([[_share(last[task]) - _share(first[task]) for task in both] for first, last in each])
    low, high = min(whole.low, whole.value - parts.half), max(whole.high, whole.value + parts.half)
    return msgspec.structs.replace(whole, low=max(-1.0, low), high=min(1.0, high), spread=parts)


def _summed(tasks: Sequence[str], rounds: Sequence[dict[str, Tally]]) -> list[Tally]:
    return [(sum(each[task][0] for each in rounds), sum(each[task][1] for each in rounds)) for task in tasks]


def _share(tally: Tally) -> float:
    return tally[0] / tally[1]


def _rates(episodes: Sequence[RoundEpisode]) -> Rates:
    return Rates(
        all=rate(list(_tallies(episodes).values())),
        feasible=rate(list(_tallies([episode for episode in episodes if episode.feasible]).values())),
        without_faults=rate(list(_tallies([episode for episode in episodes if not episode.fault]).values())),
    )


def _tallies(episodes: Iterable[RoundEpisode]) -> dict[str, Tally]:
    by_task: dict[str, Tally] = {}
    for episode in episodes:
        won, played = by_task.get(episode.task, (0, 0))
        by_task[episode.task] = (won + episode.success, played + 1)
    return by_task


def _passes(tallies: Sequence[Tally]) -> dict[int, float]:
    most = max((played for _, played in tallies), default=0)
    values = {k: pass_at(tallies, k) for k in range(1, most + 1)}
    return {k: value for k, value in values.items() if value is not None}


TIMED_OUT = "out_of_steps"  # an outcome's reason


class Mean(msgspec.Struct, frozen=True):
    """Scores from 0 to 1 of `n` episodes, added up."""

    successes: float
    n: int

    @property
    def value(self) -> float:
        return self.successes / self.n if self.n else 0.0


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One score of a round's episodes."""

    name: str
    whole: Mean
    feasible: Mean
    infeasible: Mean


def strictly(episode: RoundEpisode) -> float:
    """1 for what was claimed and verified, and for an infeasible task that was given up."""
    return float(episode.success)


def by_end_state(episode: RoundEpisode) -> float:
    """OSWorld's score: of a feasible task the end state's, claimed or not, and 0 where it was given up.

    An infeasible task is solved by giving up alone.
    """
    return strictly(episode) if episode.score is None else episode.score


def as_published(episode: RoundEpisode) -> float:
    """The published harness's score: a time-out is taken for giving up, however the desktop then looks."""
    return float(not episode.feasible) if episode.reason == TIMED_OUT else by_end_state(episode)


def side_by_side(episodes: Iterable[RoundEpisode]) -> list[Scored]:
    """The three scores, and what two trivial policies score on the same tasks: never ending, and giving up at once.

    The strict and the osworld score of giving up at once are the same, and of never ending 0.
    """
    played = [episode for episode in episodes if not episode.fault]
    return [
        _scored("strict", played, strictly),
        _scored("osworld", played, by_end_state),
        _scored("published", played, as_published),
        _scored("never ending, published", played, lambda episode: not episode.feasible),
        _scored("giving up at once", played, lambda episode: not episode.feasible),
    ]


def _scored(name: str, played: Sequence[RoundEpisode], score: Callable[[RoundEpisode], float]) -> Scored:
    def of(some: Iterable[RoundEpisode]) -> Mean:
        scores = [float(score(episode)) for episode in some]
        return Mean(sum(scores), len(scores))

    return Scored(
        name=name,
        whole=of(played),
        feasible=of(episode for episode in played if episode.feasible),
        infeasible=of(episode for episode in played if not episode.feasible),
    )
