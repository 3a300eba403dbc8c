"""From log lines to scalars, each with its tag, optimizer step and wall time. Pure.

Invariant: a step has one value per tag, but for rounds that play the same weights: what an abandoned lineage did beyond
the checkpoint that the next one started from is in none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from actors.cluster.evaluation import untrained_families
from runtime.message import Version

Line = Mapping[str, Any]
REWINDS = "lineage_started"
OF_INTEREST = frozenset((REWINDS, "learner_step", "rl_evidence", "step_trained", "eval_round_closed"))
_NOT_FIGURES = frozenset(
    ("ts", "t", "level", "event", "actor", "trace", "version", "phase", "kind", "lease", "t0", "t1", "stay", "final",
     "rl_step", "stay_step", "round", "task_set", "temperature", "tasks", "played", "successes", "feasible", "faults",
     "episodes", "instances")
)  # fmt: skip


class Scalar(NamedTuple):
    """One value of one curve."""

    tag: str
    step: int
    wall_s: float  # since the epoch
    value: float


def scalars(lines: Sequence[Line]) -> list[Scalar]:
    """The scalars of a whole history, in its order."""
    bounds = kept_up_to(lines)
    return [scalar for line in lines if _is_kept(line, bounds) for scalar in of_line(line)]


def kept_up_to(lines: Iterable[Line]) -> dict[int, int]:
    """Lineage -> the last of its steps that is no later lineage's; the newest is missing, all of it is kept."""
    starts = [
        (Version.parse(line["version"]), Version.parse(line["parent"])) for line in lines if line["event"] == REWINDS
    ]
    newest = max((new.lineage for new, _ in starts), default=0)
    return {lineage: min(parent.step for new, parent in starts if new.lineage > lineage) for lineage in range(newest)}


def of_line(line: Line) -> Iterator[Scalar]:
    """What one line adds: `PHASE/NAME` of a learner's step, `rl/NAME` of its evidence, `eval/...` of a round."""
    event = line["event"]
    if event not in OF_INTEREST or event == REWINDS:
        return
    step, wall_s = Version.parse(line["version"]).step, datetime.fromisoformat(line["ts"]).timestamp()
    if event == "eval_round_closed":
        found, head = dict(_round(line)), "eval"
    elif event == "learner_step":
        found, head = dict(_numbers(line)), str(line["phase"])
        found = {name.removeprefix("figures/"): value for name, value in found.items()}
    elif event == "step_trained":  # in cross-entropy phases no training episode is played
        found, head = ({"success": float(line["success"])} if line["phase"] == "rl" else {}), "rl"
    else:
        found, head = {name: value for name, value in _numbers(line) if name != "success"}, "rl"
    for name, value in found.items():
        if math.isfinite(value):
            yield Scalar(f"{head}/{name}", step, wall_s, value)


def _numbers(line: Line) -> Iterator[tuple[str, float]]:
    for name, value in line.items():
        if name in _NOT_FIGURES:
            continue
        if isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, dict):
            parts = [(key, part) for key, part in value.items() if isinstance(part, int | float)]
            yield from ((f"{name}/{key}", float(part)) for key, part in parts if key != "stay_step")


def _round(line: Line) -> Iterator[tuple[str, float]]:
    decoding = "greedy" if line["temperature"] == 0 else f"t={line['temperature']:g}"
    families, instances = line.get("families", {}), line.get("instances", {})
    never = untrained_families() & instances.keys()
    parts = {"": instances.keys() - never or never, "/never_trained": never if instances.keys() - never else ()}
    for name, part in parts.items():  # the first is what a run is judged by, as in its report
        if part:
            won = sum(families[family] * instances[family] for family in part)
            yield f"success/{decoding}{name}", won / sum(instances[family] for family in part)
    if not instances:  # of a run by an older build
        yield f"success/{decoding}", float(line.get("success", line["successes"] / max(1, line["tasks"])))
    for family, share in families.items():
        yield f"success/{decoding}/{family}", float(share)
    whole = "/all_families" if parts["/never_trained"] else ""
    for k, share in line.get("pass_at", {}).items():
        yield f"pass_at_{k}/{decoding}{whole}", float(share)


def _is_kept(line: Line, bounds: Mapping[int, int]) -> bool:
    if line["event"] not in OF_INTEREST or "version" not in line:
        return False
    version = Version.parse(line["version"])
    return version.step <= bounds.get(version.lineage, version.step)
