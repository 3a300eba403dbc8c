"""What each RL step shows beside its loss: success, variety, coverage, waste, age, pace.

Invariant: a step's evidence stands in the transaction that makes the step. It is computed from rows, counters and step
references alone. A resume goes on counting. Evidence of a step that a resume undid is no longer read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Transaction
from actors.replay.ledger import curriculum
from actors.replay.messages import Batch, Lane, Phase, StepEvidence, StepRef
from actors.replay.rules.groups import GroupEnding
from runtime.logs.events import fields_of
from runtime.messaging.message import Version

Group = Sequence[Sequence[StepRef]]  # the steps of each trajectory of one task


class Diversity(msgspec.Struct, frozen=True, kw_only=True):
    """Entropies in nats. An action's *line* is its function with its arguments."""

    parsed: int  # steps whose answer was an action
    refused: int
    functions: float  # entropy over all groups' functions
    lines: float  # entropy over all groups' lines
    lines_in_group: float  # entropy of lines within a group, mean over groups weighted by their parsed steps
    distinct: float  # different trajectories / trajectories of a group, mean over groups


def entropy(items: Iterable[Hashable]) -> float:
    """Shannon entropy H = -sum_k p_k ln p_k in nats, with p_k the share of kind k among `items`; 0 of none.

    The plug-in estimate of few items is too low, by about (kinds - 1) / (2 * items): compare batches of like size.
    """
    counts = Counter(items)
    total = sum(counts.values())
    return sum(count / total * math.log(total / count) for count in counts.values())


def distinct_share(group: Group) -> float:
    """Different sequences of lines over trajectories, from 1/G (all alike) to 1; 0 of an empty group."""
    return len({tuple(step.line for step in steps) for steps in group}) / len(group) if group else 0.0


def diversity(groups: Sequence[Group]) -> Diversity:
    """Of a whole batch."""
    parsed = [[step for steps in group for step in steps if step.function] for group in groups]
    flat = [step for steps in parsed for step in steps]
    total = sum(len(steps) for group in groups for steps in group)
    within = sum(len(steps) * entropy(step.line for step in steps) for steps in parsed)
    return Diversity(
        parsed=len(flat),
        refused=total - len(flat),
        functions=entropy(step.function for step in flat),
        lines=entropy(step.line for step in flat),
        lines_in_group=within / len(flat) if flat else 0.0,
        distinct=sum(map(distinct_share, groups)) / len(groups) if groups else 0.0,
    )


MEAN_OVER = 10  # steps of the segment that `success_mean` goes back
_MARK = "evidence_mark"


class _Mark(msgspec.Struct, frozen=True):
    """Where counting began: rates go over the time since, so neither a pulse nor a pause of the run is in them."""

    since: float
    episodes: int
    answers: int


def mark(tx: Transaction) -> None:
    """Count rates from now on: a step was made, a segment begins, or a run goes on."""
    now = _Mark(tx.now, tx.counter(f"episodes:{Lane.TRAIN}"), tx.counter("answers"))
    tx.set_meta(_MARK, msgspec.json.encode(now).decode())


def committed(tx: Transaction, task: str, *, success: bool, steps: int) -> None:
    """An episode of the train lane ended with an outcome."""
    tx.count("answers", steps)
    if success:
        tx.execute("INSERT OR IGNORE INTO solved VALUES(?)", task)


def step_made(
    tx: Transaction, segment: LedgerPhaseSegment, batch: Batch, version: Version, played: curriculum.PolicyEstimate
) -> None:
    """Keep and log the evidence of the RL step that `batch` became; its lease is already `trained`."""
    recent = tx.row(
        "SELECT AVG(success) FROM (SELECT l.success FROM leases l CROSS JOIN stays s ON s.idx = l.stay "
        "WHERE l.state = 'trained' AND s.root = ? ORDER BY l.id DESC LIMIT ?)",
        segment.root, MEAN_OVER,
    )  # fmt: skip
    assert recent is not None
    groups = [[trajectory.steps for trajectory in group.trajectories] for group in batch.groups]
    outcomes = [trajectory.success for group in batch.groups for trajectory in group.trajectories]
    varied = diversity(groups)
    solved = tx.number("SELECT COUNT(*) FROM solved")
    wasted_total = {str(end): tx.counter(f"ending:{end}") for end in GroupEnding if end is not GroupEnding.TRAINED}
    before = tx.row(
        "SELECT e.wasted FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    known = msgspec.json.decode(before["wasted"], type=dict[str, int]) if before is not None else {}
    since = msgspec.json.decode(tx.meta(_MARK) or '{"since":0,"episodes":0,"answers":0}', type=_Mark)
    minutes = max(tx.now - since.since, 1e-3) / 60
    found = StepEvidence(
        lease=batch.lease,
        version=version,
        stay=segment.root,
        stay_step=tx.steps_in(segment.root),
        rl_step=tx.steps_by_phase().get(Phase.RL, 0),
        success=played.success,
        success_mean=float(recent[0]),
        success_by_kind=curriculum.success_by_kind(tx),
        success_batch=sum(outcomes) / len(outcomes) if outcomes else 0.0,
        sampled_entropy_nats=played.entropy,
        action_entropy_nats=varied.functions,
        call_entropy_nats=varied.lines,
        group_call_entropy_nats=varied.lines_in_group,
        parsed=varied.parsed,
        refused=varied.refused,
        distinct_trajectories=varied.distinct,
        coverage=solved / max(1, len(tx.settings.train_tasks)),
        tasks_solved=solved,
        wasted={ending: count - known.get(ending, 0) for ending, count in wasted_total.items()},
        wasted_total=wasted_total,
        staleness={str(age): count for age, count in sorted(Counter(batch.staleness).items())},
        episodes_per_min=(tx.counter(f"episodes:{Lane.TRAIN}") - since.episodes) / minutes,
        steps_per_min=(tx.counter("answers") - since.answers) / minutes,
        elapsed_s=tx.now - since.since,
    )
    body = msgspec.json.encode(found).decode()
    tx.execute("INSERT INTO evidence VALUES(?, ?, ?)", batch.lease, msgspec.json.encode(wasted_total).decode(), body)
    mark(tx)
    tx.emit(events.RL_EVIDENCE, **fields_of(found))


def staleness(tx: Transaction, lease: int) -> dict[str, int]:
    """Optimizer steps -> trajectories that the RL step made of `lease` was trained on; nothing for other steps."""
    row = tx.row("SELECT body FROM evidence WHERE lease = ?", lease)
    return {} if row is None else msgspec.json.decode(row["body"], type=StepEvidence).staleness


def newest(tx: Transaction) -> StepEvidence | None:
    """Of the last RL step that stands."""
    row = tx.row(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    return None if row is None else msgspec.json.decode(row["body"], type=StepEvidence)


def series(tx: Transaction) -> list[StepEvidence]:
    """Of every RL step that stands, oldest first."""
    rows = tx.rows(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' ORDER BY e.lease"
    )
    return [msgspec.json.decode(row["body"], type=StepEvidence) for row in rows]
