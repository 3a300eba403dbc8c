"""Scores of one round side by side: as this program counts, as the published harness does, and of two trivial policies.

Invariant: pure. Of all scores the denominators are the same, feasible and infeasible tasks apart, and faults are left
out of both. Where no task is infeasible the trivial policies score 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from actors.replay.statistics.intervals import Rate, rate
from actors.replay.statistics.success_rates import RoundEpisode

TIMED_OUT = "out_of_steps"  # an outcome's reason


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One score of a round's episodes."""

    name: str
    whole: Rate
    feasible: Rate
    infeasible: Rate


def as_published(episode: RoundEpisode) -> bool:
    """Whether the published harness surely counts the episode: a time-out at an infeasible task is giving up there.

    It also counts a right end that was not claimed. Such an end is not verified here, so the score is a lower bound.
    """
    return episode.success or (not episode.feasible and episode.reason == TIMED_OUT)


def side_by_side(episodes: Iterable[RoundEpisode]) -> list[Scored]:
    """The scores: strict, as published at the least, and as published of a policy that never ends or gives up at once.

    Strictly, giving up at once scores the same, and never ending scores 0.
    """
    played = [episode for episode in episodes if not episode.fault]
    return [
        _scored("strict", played, lambda episode: episode.success),
        _scored("published, at least", played, as_published),
        _scored("never ending, published", played, lambda episode: not episode.feasible),
        _scored("giving up at once", played, lambda episode: not episode.feasible),
    ]


def _scored(name: str, played: Sequence[RoundEpisode], counts: Callable[[RoundEpisode], bool]) -> Scored:
    def of(some: Iterable[RoundEpisode]) -> Rate:
        tallies: dict[str, tuple[int, int]] = {}
        for episode in some:
            won, tried = tallies.get(episode.task, (0, 0))
            tallies[episode.task] = (won + counts(episode), tried + 1)
        return rate(list(tallies.values()))

    return Scored(
        name=name,
        whole=of(played),
        feasible=of(episode for episode in played if episode.feasible),
        infeasible=of(episode for episode in played if not episode.feasible),
    )
