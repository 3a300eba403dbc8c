"""The snapshot that Entropulse, progress and status show, and what each RL step shows besides its loss.

A step's evidence is written in the transaction that makes the step. That of a step that a resume undid is not read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec

from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Transaction
from actors.replay.ledger import demo_tasks, phases, task_choice
from actors.replay.ledger.retention import count_successes
from actors.replay.messages import Batch, Figures, Lane, Phase, StepEvidence, StepRef
from actors.replay.rules.groups import GroupEnding, GroupState
from actors.replay.statistics import Tally, pass_at
from runtime.logs.events import fields_of
from runtime.messaging.message import Version


def figures(tx: Transaction, revision: int) -> Figures:
    """A consistent snapshot."""
    path = tx.path()
    segment = path[0]
    counters = {row["name"]: row["value"] for row in tx.rows("SELECT name, value FROM counters")}
    live = Counter(row["state"] for row in tx.groups_in(GroupState.OPEN, GroupState.READY, GroupState.LEASED))
    steps = tx.rows(
        # Begun from the segments, which are few.
        "SELECT l.success, l.entropy FROM stays s CROSS JOIN leases l ON l.stay = s.idx "
        "WHERE s.root = ? AND l.state = 'trained' ORDER BY l.id",
        segment.root,
    )
    measured = [row for row in steps if row["entropy"] is not None]
    return Figures(
        revision=revision,
        phase=segment.ref,
        phase_steps=len(steps),
        phase_limit=tx.step_limit(segment),
        steps=tx.steps_by_phase(),
        stays=dict(Counter(str(part.phase) for part in path)),
        trained=tx.trained,
        checkpointed=tx.checkpointed,
        served=tx.served,
        demos=counters.get("demos", 0),
        demo_attempts=counters.get("demo_attempts", 0),
        demo_strata=_named(counters, "demos:"),
        demo_tasks=demo_tasks.counts(tx),
        demo_left=demo_tasks.attempts_left(tx),
        groups_open=live[GroupState.OPEN],
        groups_ready=live[GroupState.READY],
        groups_leased=live[GroupState.LEASED],
        endings={ending: counters.get(f"ending:{ending}", 0) for ending in GroupEnding},
        groups_opened=counters.get("opened", 0),
        groups_wasted=counters.get("wasted", 0),
        successes_kept=count_successes(tx),
        episodes={lane: counters.get(f"episodes:{lane}", 0) for lane in Lane},
        faults=_named(counters, "fault:"),
        train_success=[row["success"] for row in measured],
        entropy=[row["entropy"] for row in measured],
        evals=phases.rounds(tx),
        rounds_wait=phases.rounds_wait(tx),
        seats_busy=tx.number("SELECT COUNT(*) FROM reservations WHERE state = 'out'"),
        staleness=_named(counters, "staleness:"),
        tasks_resting=len(task_choice.quarantined(tx)),
        evidence=newest(tx),
        trials=phases.trials(tx),
    )


def _named(counters: dict[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in counters.items() if value and name.startswith(prefix)}


Group = Sequence[Sequence[StepRef]]  # the steps of each trajectory of one task


def remembered_share(steps: Iterable[StepRef]) -> float:
    """The share of steps for which no desktop was needed; 0 of none."""
    given = [step.remembered for step in steps]
    return sum(given) / len(given) if given else 0.0


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


def diversity(groups: Sequence[Group]) -> dict[str, Any]:
    """Fields of `StepEvidence` of a whole batch. An action's line is its function with its arguments.

    A group's call entropy is weighted by its parsed steps.
    """
    parsed = [[step for steps in group for step in steps if step.function] for group in groups]
    flat = [step for steps in parsed for step in steps]
    total = sum(len(steps) for group in groups for steps in group)
    within = sum(len(steps) * entropy(step.line for step in steps) for steps in parsed)
    return {
        "parsed": len(flat),
        "refused": total - len(flat),
        "action_entropy_nats": entropy(step.function for step in flat),
        "group_call_entropy_nats": within / len(flat) if flat else 0.0,
        "distinct_trajectories": sum(map(distinct_share, groups)) / len(groups) if groups else 0.0,
    }


def _completed(tx: Transaction, first: int, last: int) -> list[tuple[str, Tally]]:
    """Task, and successes and episodes, of each group whose last episode is in (first, last]."""
    rows = tx.rows(
        "SELECT g.task, SUM(e.success), COUNT(*) FROM episodes e JOIN groups g ON g.id = e.group_id "
        "WHERE e.group_id IN (SELECT group_id FROM episodes WHERE lane = ? AND seq > ? AND seq <= ?) "
        "AND g.state != 'open' GROUP BY g.id HAVING MAX(e.seq) <= ? ORDER BY g.id",
        *(Lane.TRAIN, first, last, last),
    )
    return [(row[0], (row[1], row[2])) for row in rows]


def groups_shown(completed: Sequence[tuple[str, Tally]]) -> dict[str, Any]:
    """Fields of `StepEvidence` of the groups of tasks, each with its successes and episodes."""
    groups, by_family = [tally for _, tally in completed], dict[str, list[Tally]]()
    for task, tally in completed:
        by_family.setdefault(task.partition("/")[0], []).append(tally)
    tries = sum(n for _, n in groups)
    return {
        "pass_at_1": sum(k for k, _ in groups) / tries if tries else None,
        "pass_at_8": pass_at(groups, 8),
        "equal_groups": sum(k in (0, n) for k, n in groups) / len(groups) if groups else None,
        "all_right": {name: sum(k == n for k, n in own) / len(own) for name, own in sorted(by_family.items())},
        "all_wrong": {name: sum(k == 0 for k, _ in own) / len(own) for name, own in sorted(by_family.items())},
    }


def step_made(
    tx: Transaction,
    segment: LedgerPhaseSegment,
    batch: Batch,
    version: Version,
    played: task_choice.PolicyEstimate,
    *,
    since: tuple[int, int],
) -> None:
    """Keep and log the evidence of the RL step that `batch` became; its lease is already `trained`.

    Numbers in (first, last] of `since` are the episodes committed after the step before.
    """
    groups = [[one.steps for one in group.trajectories] for group in batch.groups]
    wasted_total = {str(end): tx.counter(f"ending:{end}") for end in GroupEnding if end is not GroupEnding.TRAINED}
    before = tx.row(
        "SELECT e.wasted FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    known = msgspec.json.decode(before["wasted"], type=dict[str, int]) if before is not None else {}
    mark = phases.marked(tx)
    minutes = max(tx.now - mark.since, 1e-3) / 60
    evidence = StepEvidence(
        lease=batch.lease,
        version=version,
        stay=segment.root,
        stay_step=tx.steps_in(segment.root),
        rl_step=tx.steps_by_phase().get(Phase.RL, 0),
        success=played.success,
        success_by_kind=task_choice.success_by_kind(tx),
        **groups_shown(_completed(tx, *since)),
        sampled_entropy_nats=played.entropy,
        **diversity(groups),
        coverage=tx.number("SELECT COUNT(*) FROM solved") / max(1, len(tx.settings.train_tasks)),
        wasted={ending: count - known.get(ending, 0) for ending, count in wasted_total.items()},
        staleness={str(age): count for age, count in sorted(Counter(batch.staleness).items())},
        episodes_per_min=(tx.counter(f"episodes:{Lane.TRAIN}") - mark.episodes) / minutes,
        elapsed_s=tx.now - mark.since,
        remembered=remembered_share(step for group in groups for steps in group for step in steps),
    )
    body = msgspec.json.encode(evidence).decode()
    tx.execute("INSERT INTO evidence VALUES(?, ?, ?)", batch.lease, msgspec.json.encode(wasted_total).decode(), body)
    phases.mark(tx)
    tx.emit(events.RL_EVIDENCE, **fields_of(evidence))


def staleness(tx: Transaction, lease: int) -> dict[str, int]:
    """Optimizer steps -> trajectories that the RL step made of `lease` was trained on; nothing for other steps."""
    row = tx.row("SELECT body FROM evidence WHERE lease = ?", lease)
    return {} if row is None else msgspec.json.decode(row["body"], type=StepEvidence).staleness


def newest(tx: Transaction) -> StepEvidence | None:
    """Of the last RL step that counts."""
    row = tx.row(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' "
        "ORDER BY e.lease DESC LIMIT 1"
    )
    return None if row is None else msgspec.json.decode(row["body"], type=StepEvidence)
