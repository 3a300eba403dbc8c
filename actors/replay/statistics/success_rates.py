"""What an evaluation round says: success by three denominators, by family, pass@k, and gains between rounds.

Invariant: pure. A fault counts as a failure among all episodes and is left out of the rate without faults. Every
summary gives the number of faults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from actors.replay.statistics.intervals import Gain, Rate, Tally, paired, pass_at, rate, with_seeds


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
        """The first part of the task's id."""
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
    found = list(episodes)
    played = [episode for episode in found if not episode.fault]
    each = _tallies(played)
    return Summary(
        instances=len({episode.task for episode in found}),
        episodes=len(found),
        faults=len(found) - len(played),
        whole=_rates(found),
        trained=_rates([episode for episode in found if episode.family not in untrained]),
        untrained=_rates([episode for episode in found if episode.family in untrained]),
        families={
            family: _rates([episode for episode in found if episode.family == family])
            for family in sorted({episode.family for episode in found})
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

    Where there are several, the interval also holds what other seeds would differ by (`intervals.with_seeds`).
    """
    listed = [(list(before), list(after)) for before, after in pairs]
    every = [episode for pair in listed for episode in (*pair[0], *pair[1])]
    tasks = {episode.task for episode in every}
    sound = tasks - {episode.task for episode in every if episode.fault}
    each = [[_tallies(e for e in episodes if e.task in sound) for episodes in pair] for pair in listed]
    both = sorted(set.intersection(*(set(found) for pair in each for found in pair))) if each else []
    before, after = (_summed(both, [pair[side] for pair in each]) for side in (0, 1))
    whole = paired(before, after, len(tasks) - len(both))
    if len(each) < 2 or len(both) < 2:
        return whole
    return with_seeds(whole, [[_share(last[task]) - _share(first[task]) for task in both] for first, last in each])


def _summed(tasks: Sequence[str], found: Sequence[dict[str, Tally]]) -> list[Tally]:
    return [(sum(one[task][0] for one in found), sum(one[task][1] for one in found)) for task in tasks]


def _share(tally: Tally) -> float:
    return tally[0] / tally[1]


def _rates(episodes: Sequence[RoundEpisode]) -> Rates:
    return Rates(
        all=rate(list(_tallies(episodes).values())),
        feasible=rate(list(_tallies([episode for episode in episodes if episode.feasible]).values())),
        without_faults=rate(list(_tallies([episode for episode in episodes if not episode.fault]).values())),
    )


def _tallies(episodes: Iterable[RoundEpisode]) -> dict[str, Tally]:
    found: dict[str, Tally] = {}
    for episode in episodes:
        won, played = found.get(episode.task, (0, 0))
        found[episode.task] = (won + episode.success, played + 1)
    return found


def _passes(tallies: Sequence[Tally]) -> dict[int, float]:
    most = max((played for _, played in tallies), default=0)
    values = {k: pass_at(tallies, k) for k in range(1, most + 1)}
    return {k: value for k, value in values.items() if value is not None}
