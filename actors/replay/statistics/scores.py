"""Scores of one round side by side: strict, as OSWorld counts, as the published harness does, and of trivial policies.

Invariant: pure. Of all scores the denominators are the same, feasible and infeasible tasks apart, and faults are left
out of both. Where no task is infeasible the trivial policies score 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from actors.replay.statistics.success_rates import RoundEpisode

TIMED_OUT = "out_of_steps"  # an outcome's reason


class Mean(msgspec.Struct, frozen=True):
    """Scores from 0 to 1 of `n` episodes, added up."""

    successes: float
    n: int

    @property
    def value(self) -> float:
        """The mean, 0 of an empty set."""
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
