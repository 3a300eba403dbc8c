"""Reads a run's ledger and logs for a report, while it runs or after.

Invariant: the ledger is opened read-only. Every success rate comes with its decoding, its task-set hash and its three
denominators. Spans are of one clock (the run's), and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster.report.machine import MachineTime, machine_time
from actors.cluster.report.seats import SeatTime, seat_time
from actors.cluster.runs import evaluation_rounds, ledgers
from actors.cluster.runs.evaluation_rounds import Compared, EvaluationRound
from actors.replay.database import queries
from actors.replay.messages import Phase
from runtime.logs.reader import in_a_row, read_logs
from runtime.logs.writer import log_folder
from runtime.messaging.message import Version

Span = tuple[float, float]


class Overlap(msgspec.Struct, frozen=True):
    """Seconds of RL, of optimizer steps in it, and of those during which at least one training episode was played."""

    rl_s: float
    learner_s: float
    both_s: float
    episodes_at_once: float  # episodes being played during an optimizer step, on average

    @property
    def share(self) -> float:
        """Share of the optimizer steps' time in which desktops acted."""
        return self.both_s / self.learner_s if self.learner_s else 0.0


def union(spans: Sequence[Span]) -> list[Span]:
    """The same seconds as disjoint spans in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def common_s(a: Sequence[Span], b: Sequence[Span]) -> float:
    """Seconds that lie in a span of `a` and in a span of `b`; each list is disjoint."""
    return sum((max(0.0, min(a1, b1) - max(a0, b0)) for a0, a1 in a for b0, b1 in b), start=0.0)


def overlap(steps: Sequence[Span], episodes: Sequence[Span]) -> Overlap:
    """How optimizer steps of RL and training episodes lie beside each other."""
    learner, acting = union(steps), union(episodes)
    learner_s = sum((end - start for start, end in learner), start=0.0)
    crowd_s = sum((common_s(learner, [span]) for span in episodes), start=0.0)
    times = [moment for span in (*learner, *acting) for moment in span]
    return Overlap(
        rl_s=max(times) - min(times) if times else 0.0,
        learner_s=learner_s,
        both_s=common_s(learner, acting),
        episodes_at_once=crowd_s / learner_s if learner_s else 0.0,
    )


OF_INTEREST = frozenset(
    (
        "cpu_used", "desktop_booted", "desktop_gone", "episode_ended", "eval_round_closed", "eval_round_opened",
        "host_started", "learner_step", "ledger_opened", "lineage_started", "phase_changed", "seat_time",
        "weights_loaded", "weights_pinned", "weights_unpinned",
    )
)  # fmt: skip


class PhaseSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One phase segment."""

    phase: str
    start: int  # optimizer step
    cause: str


class StepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step."""

    step: int
    phase: str = ""  # "" in figures of an older build
    success: float | None  # of the batch's training episodes; None where none are played
    entropy: float | None  # nats per token: of the batch's answers in RL, the learner's own otherwise


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All that a report says of a run."""

    run: str
    segments: list[PhaseSegment] = msgspec.field(name="stays")  # as files of figures call them
    points: list[StepPoint]
    rounds: list[EvaluationRound]
    gains: list[Compared]  # from the first to the last round of each decoding
    endings: dict[str, int]
    episodes: dict[str, int]
    overlap: Overlap
    seats: SeatTime | None = None  # None for a run whose seats told nothing
    machine: MachineTime | None = None
    observations: queries.Observations = queries.FIRST_OBSERVATION  # versions that its desktops showed, smallest first

    def closed(self) -> list[EvaluationRound]:
        """The rounds that were played to their end."""
        return [found for found in self.rounds if found.closed]


def logged(path: Path, events: Collection[str]) -> list[dict[str, Any]]:
    """The log lines of these events, without the time in which the run was stopped; none of a run without logs."""
    if not log_folder(path).is_dir():
        return []
    return [line for line in in_a_row(read_logs(path)) if line["event"] in events]


def read_run(path: Path) -> RunFigures:
    """Everything at once. Raises ConfigError where there is no ledger that can be read."""
    with ledgers.opened(path) as db:
        segments = [
            PhaseSegment(phase=row["phase"], start=Version.parse(row["start"]).step, cause=row["cause"])
            for row in queries.phases(db)
        ]
        points = [
            StepPoint(
                step=Version.parse(row["made"]).step,
                phase=row["phase"],
                success=row["success"] if row["phase"] == Phase.RL else None,
                entropy=row["entropy"],
            )
            for row in queries.steps(db)
        ]
        rounds = evaluation_rounds.rounds_of(db)
        endings, episodes = queries.group_endings(db), queries.episodes_by_lane(db)
        observations = queries.observations_of_episodes(db)
    lines = logged(path, OF_INTEREST)
    seats = seat_time(lines)
    leased_s = seats.busy_s - seats.stages_s["leasing"] if seats else 0.0
    return RunFigures(
        run=path.name,
        segments=segments,
        points=points,
        rounds=rounds,
        gains=evaluation_rounds.gains(rounds),
        endings=endings,
        episodes=episodes,
        overlap=_overlap(lines),
        seats=seats,
        machine=machine_time(lines, leased_s),
        observations=observations,
    )


def _overlap(lines: list[dict[str, Any]]) -> Overlap:
    steps, episodes = [], []
    for line in lines:
        if line["event"] == "learner_step" and line["phase"] == Phase.RL:
            steps.append((line["t0"], line["t1"]))
        elif line["event"] == "episode_ended" and line["lane"] == "train":
            episodes.append((line["t0"], line["t1"]))
    return overlap(steps, episodes)
