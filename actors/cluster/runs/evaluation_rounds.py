"""A run's evaluation rounds as its ledger holds them, and the gain between them.

Invariant: the ledger is opened read-only; two rounds are compared only when they share task set
and decoding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from actors.cluster.runs import ledgers
from actors.replay.database import queries
from actors.replay.statistics import Gain, RoundEpisode, Summary, gain, side_by_side, summarise
from apis.tasks import registry as tasks
from runtime.errors import ConfigError
from runtime.messaging.message import Version


class EvaluationRound(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation round."""

    name: str
    version: str
    step: int  # optimizer steps of its weights
    temperature: float
    max_new_tokens: int
    task_set: str  # `apis.tasks.registry.digest` of its tasks
    closed: bool
    summary: Summary
    episodes: list[RoundEpisode]  # what it was made of: episodes still to be played are not among them
    remembered: float = 0.0  # share of its steps that a memo gave
    trained: frozenset[str] = frozenset()  # families that its run trains on; none where nothing was trained

    @property
    def decoding(self) -> str:
        """`greedy` or `T=1`."""
        return "greedy" if self.temperature == 0 else f"T={self.temperature:g}"

    @property
    def judged(self) -> list[RoundEpisode]:
        """What a run is judged by: the episodes of families that it trains on, where it has any."""
        never = untrained_families(self.summary.families, self.trained)
        return [episode for episode in self.episodes if episode.family not in never] or self.episodes

    @property
    def score_rows(self) -> list[tuple[str, ...]]:
        """Its scores side by side under `SCORES`; none where no task is infeasible and all scores are alike."""
        scores = side_by_side(self.episodes)
        if not scores[0].infeasible.n and len({one.whole.successes for one in scores[:3]}) == 1:
            return []
        means = ((one.name, (one.whole, one.feasible, one.infeasible)) for one in scores)
        return [
            (name, *(f"{m.value:.3f} ({m.successes:g}/{m.n})" if m.n else "-" for m in three)) for name, three in means
        ]


SCORES = ("Score", "All", "Feasible", "Infeasible")


def untrained_families(families: Iterable[str], trained: Collection[str] = ()) -> frozenset[str]:
    """Those of `families` that are not `trained`; where nothing was trained, those that no suite trains on."""
    known = tasks.FAMILIES
    return frozenset(
        name for name in families if (name not in trained if trained else name in known and not known[name].trained)
    )


def read_rounds(run: Path) -> list[EvaluationRound]:
    """The rounds of the run at `run` that count, as they were opened. Raises ConfigError without a readable ledger."""
    with ledgers.opened(run) as db:
        return rounds_of(db)


def rounds_of(db: queries.Database) -> list[EvaluationRound]:
    """The same from an open ledger whose rows have names."""
    trained = frozenset(queries.trained_families(db))
    return [
        _round(row, queries.round_episodes(db, row["id"]), trained, queries.round_remembered(db, row["id"]))
        for row in queries.rounds(db)
    ]


def _round(
    row: queries.Row, episodes: list[RoundEpisode], trained: frozenset[str], remembered: float
) -> EvaluationRound:
    return EvaluationRound(
        name=row["name"],
        version=row["version"],
        step=Version.parse(row["version"]).step,
        temperature=row["temperature"],
        max_new_tokens=row["max_new_tokens"],
        task_set=row["task_set"],
        closed=bool(row["closed"]),
        summary=summarise(episodes, untrained_families({episode.family for episode in episodes}, trained)),
        episodes=episodes,
        trained=trained,
        remembered=remembered,
    )


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The paired gain between two rounds, of all instances and of each part that has any."""

    before: str  # names of the rounds
    after: str
    decoding: str
    task_set: str
    whole: Gain
    trained: Gain | None
    untrained: Gain | None
    families: dict[str, Gain]


def compare(before: EvaluationRound, after: EvaluationRound) -> Compared:
    """What changed from one round to the other. Raises ConfigError unless they are alike."""
    if (first := _kind(before)) != (last := _kind(after)):
        raise ConfigError(f"{before.name} and {after.name} can't be compared: {_said(first)} and {_said(last)}")
    one, two = before.episodes, after.episodes
    families = sorted({episode.family for episode in one})
    never = untrained_families(families, after.trained)
    apart = {family: gain(_of(one, [family]), _of(two, [family])) for family in families}
    trained, untrained = ([f for f in families if (f in never) is kind] for kind in (False, True))
    return Compared(
        before=before.name,
        after=after.name,
        decoding=after.decoding,
        task_set=after.task_set,
        whole=gain(one, two),
        trained=gain(_of(one, trained), _of(two, trained)) if trained else None,
        untrained=gain(_of(one, untrained), _of(two, untrained)) if untrained else None,
        families=apart,
    )


def gains(rounds: Sequence[EvaluationRound]) -> list[Compared]:
    """From the first to the last closed round of every kind, where they are of other weights; first kinds first."""
    kinds: dict[tuple[object, ...], list[EvaluationRound]] = {}
    for found in rounds:
        if found.closed:
            kinds.setdefault(_kind(found), []).append(found)
    return [compare(alike[0], alike[-1]) for alike in kinds.values() if alike[0].step != alike[-1].step]


def _kind(found: EvaluationRound) -> tuple[str, float, int]:
    return found.task_set, found.temperature, found.max_new_tokens


def _said(kind: tuple[str, float, int]) -> str:
    return f"task set {kind[0]} at temperature {kind[1]:g}, {kind[2]} tokens"


def _of(episodes: Sequence[RoundEpisode], families: Sequence[str]) -> list[RoundEpisode]:
    return [episode for episode in episodes if episode.family in families]
