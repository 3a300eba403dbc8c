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
from actors.replay.values import Phase
from runtime.messaging.message import Version


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step."""

    step: int
    phase: str
    figures: dict[str, float]  # names as in `learner_step` and `rl_evidence`; `success` of training episodes
    staleness: dict[int, int] = {}  # optimizer steps -> trajectories of the batch
    wasted: dict[str, int] = {}  # ending -> groups since the step before


def read_steps(run: Path, lines: Iterable[Mapping[str, Any]] = ()) -> list[StepFigures]:
    """The steps in order. `lines` of a run whose ledger keeps no evidence give staleness and waste."""
    with ledgers.opened(run) as db:
        told, rows = queries.evidence(db), queries.steps(db)
    logged = _logged(lines)
    steps = []
    for row in rows:
        evidence = msgspec.json.decode(told[row["id"]]) if row["id"] in told else {}
        staleness, wasted = logged.get(row["id"], ({}, {}))
        figures = {**_numbers(msgspec.json.decode(row["figures"] or "{}")), **_numbers(evidence)}
        if row["phase"] == Phase.RL and row["success"] is not None:
            figures["success"] = row["success"]  # in cross-entropy phases no training episode is played
        steps.append(
            StepFigures(
                step=Version.parse(row["made"]).step,
                phase=row["phase"],
                figures=figures,
                staleness={int(age): n for age, n in (evidence.get("staleness") or staleness).items()},
                wasted=evidence.get("wasted") or wasted,
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


def _logged(lines: Iterable[Mapping[str, Any]]) -> dict[int, tuple[dict[str, int], dict[str, int]]]:
    """Lease -> staleness of its batch and the groups that were wasted since the lease before."""
    found: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    wasted: dict[str, int] = {}
    for line in lines:
        if line["event"] == "group_ended" and line["ending"] != "trained":
            wasted[line["ending"]] = wasted.get(line["ending"], 0) + 1
        elif line["event"] == "batch_taken" and line["phase"] == Phase.RL:
            found[line["lease"]] = (line["staleness"], wasted)
            wasted = {}
    return found
