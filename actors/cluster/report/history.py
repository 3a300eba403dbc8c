"""What every optimizer step of a run said of itself, from its ledger.

Invariant: read-only. Steps that a resume undid are not among them. A figure that this build does not know, or that the
run does not have, is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster.runs import ledgers
from actors.replay.database import queries
from actors.replay.messages import Phase
from runtime.messaging.message import Version


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step."""

    step: int
    phase: str
    figures: dict[str, float]  # names as in `learner_step` and `rl_evidence`; `success` of training episodes
    staleness: dict[int, int] = {}  # optimizer steps -> trajectories of the batch


def read_steps(run: Path) -> list[StepFigures]:
    """The steps in order."""
    with ledgers.opened(run) as db:
        told, rows = queries.evidence(db), queries.steps(db)
    steps = []
    for row in rows:
        evidence = msgspec.json.decode(told[row["id"]]) if row["id"] in told else {}
        figures = {**_numbers(msgspec.json.decode(row["figures"] or "{}")), **_numbers(evidence)}
        if row["phase"] == Phase.RL and row["success"] is not None:
            figures["success"] = row["success"]  # in cross-entropy phases no training episode is played
        steps.append(
            StepFigures(
                step=Version.parse(row["made"]).step,
                phase=row["phase"],
                figures=figures,
                staleness={int(age): n for age, n in evidence.get("staleness", {}).items()},
            )
        )
    return steps


def has_rl(steps: Iterable[StepFigures]) -> bool:
    """Whether a step of RL is among them."""
    return any(one.phase == Phase.RL for one in steps)


def series(steps: Iterable[StepFigures], name: str, phase: str | None = None) -> dict[int, float]:
    """The curve of a figure, within one phase or over all."""
    return {
        one.step: one.figures[name] for one in steps if name in one.figures and (phase is None or one.phase == phase)
    }


def total(steps: Iterable[StepFigures], of: Callable[[StepFigures], Mapping[Any, int]]) -> dict[Any, int]:
    """Counts added up over steps, by key in order."""
    found: dict[Any, int] = {}
    for one in steps:
        for name, count in of(one).items():
            found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
