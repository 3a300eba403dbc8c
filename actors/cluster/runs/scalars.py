"""A run's scalars, each with its tag, optimizer step and wall time, from its ledger.

Invariant: a step has one value per tag, but for rounds that play the same weights. No step or round that a resume undid
is among them. No log is read, so nothing is lost with rolled logs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from actors.cluster.runs.evaluation_rounds import untrained_families
from actors.replay.database import queries
from actors.replay.values import Phase
from runtime.messaging.message import Version

_NOT_SCALARS = frozenset(("lease", "version", "stay", "rl_step", "stay_step", "success"))  # of a step's evidence


class Scalar(NamedTuple):
    """One value of one curve."""

    tag: str
    step: int
    wall_s: float  # since the epoch
    value: float


class LedgerPosition(NamedTuple):
    """How far a ledger was read."""

    lineages: int = 0
    lease: int = 0  # the last that was read
    rounds: frozenset[int] = frozenset()


def of_ledger(ledger: queries.Database, seen: LedgerPosition) -> tuple[list[Scalar], LedgerPosition]:
    """What was added to `ledger` since `seen`, or all of it after a learner began anew: then `lineages` differs."""
    lineages = queries.lineages(ledger)
    if lineages != seen.lineages:
        seen = LedgerPosition(lineages)
    found: list[Scalar] = []
    lease = seen.lease
    for row in queries.steps_since(ledger, lease):
        lease = row["id"]
        found += _finite(_of_step(row), Version.parse(row["made"]).step, row["wall"])
    rounds = set(seen.rounds)
    for row in queries.rounds_closed(ledger):
        if row["id"] not in rounds:
            rounds.add(row["id"])
            said = json.loads(row["said"])
            named = ((f"eval/{name}", value) for name, value in of_round(said))
            found += _finite(named, Version.parse(said["version"]).step, row["wall"])
    return found, LedgerPosition(lineages, lease, frozenset(rounds))


def _finite(values: Iterator[tuple[str, float]], step: int, wall_s: float) -> list[Scalar]:
    return [Scalar(tag, step, wall_s, value) for tag, value in values if math.isfinite(value)]


def _of_step(row: queries.Row) -> Iterator[tuple[str, float]]:
    """`PHASE/NAME` of the learner's figures, `rl/NAME` of the evidence."""
    for name, value in json.loads(row["figures"] or "{}").items():
        # The learner counts a segment's steps from 0, the evidence from 1: two values of one tag. None was no number.
        if name != "stay_step" and value is not None:
            yield f"{row['phase']}/{name}", float(value)
    if row["phase"] == Phase.RL and row["success"] is not None:  # cloning and pulses play no training episodes
        yield f"{Phase.RL}/success", float(row["success"])
    if row["body"]:
        yield from ((f"{Phase.RL}/{name}", value) for name, value in _numbers(json.loads(row["body"])))


def _numbers(evidence: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in evidence.items():
        if name in _NOT_SCALARS:
            continue
        if isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, dict):
            yield from ((f"{name}/{key}", float(part)) for key, part in value.items())


def of_round(said: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """`success/DECODING/...` and `pass_at_K/DECODING` of what a closed round's event says."""
    decoding = "greedy" if said["temperature"] == 0 else f"t={said['temperature']:g}"
    families, instances = said["families"], said["instances"]
    never = untrained_families() & instances.keys()
    parts = {"": instances.keys() - never or never, "/never_trained": never if instances.keys() - never else ()}
    for name, part in parts.items():  # the first is what a run is judged by, as in its report
        if part:
            won = sum(families[family] * instances[family] for family in part)
            yield f"success/{decoding}{name}", won / sum(instances[family] for family in part)
    for family, share in families.items():
        yield f"success/{decoding}/{family}", float(share)
    whole = "/all_families" if parts["/never_trained"] else ""
    for k, share in said["pass_at"].items():
        yield f"pass_at_{k}/{decoding}{whole}", float(share)
