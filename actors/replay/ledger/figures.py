"""The snapshot that Entropulse, progress and status show, and the proof that it adds up.

Invariant: counters kept along the way equal what the rows say, and opened = open + ready + leased + sum(endings).
"""

from __future__ import annotations

from collections import Counter

from actors.replay.database.transaction import Transaction
from actors.replay.ledger import demo_tasks, eval_rounds, step_evidence, task_quarantine
from actors.replay.ledger.sft_batches import count_successes
from actors.replay.messages import Figures, Lane
from actors.replay.rules.groups import GroupEnding, GroupState
from runtime.errors import StoreError


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
        stays=dict(Counter(str(one.phase) for one in path)),
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
        evals=eval_rounds.figures(tx),
        rounds_wait=eval_rounds.wait(tx),
        seats_busy=tx.number("SELECT COUNT(*) FROM reservations WHERE state = 'out'"),
        staleness=_named(counters, "staleness:"),
        tasks_resting=len(task_quarantine.quarantined(tx)),
        evidence=step_evidence.newest(tx),
    )


def _named(counters: dict[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): value for name, value in counters.items() if value and name.startswith(prefix)}


def audit(tx: Transaction) -> None:
    """Compare counters with rows. Raises StoreError naming the first that differs."""
    counted = {row["name"]: row["value"] for row in tx.rows("SELECT name, value FROM counters")}
    rows = {"opened": tx.number("SELECT COUNT(*) FROM groups")}
    for row in tx.rows("SELECT ending, COUNT(*) AS n FROM groups WHERE state = 'ended' GROUP BY ending"):
        rows[f"ending:{row['ending']}"] = row["n"]
    for row in tx.rows("SELECT lane, COUNT(*) AS n FROM episodes GROUP BY lane"):
        rows[f"episodes:{row['lane']}"] = row["n"]
    rows["demos"] = tx.number("SELECT COUNT(*) FROM episodes WHERE lane = 'demo' AND success = 1")
    names = set(rows) | {name for name in counted if name.startswith(("ending:", "episodes:"))}
    for name in sorted(names):
        if counted.get(name, 0) != rows.get(name, 0):
            raise StoreError(f"the ledger counts {counted.get(name, 0)} for {name}, its rows say {rows.get(name, 0)}")
    live = len(tx.groups_in(GroupState.OPEN, GroupState.READY, GroupState.LEASED))
    ended = sum(value for name, value in rows.items() if name.startswith("ending:"))
    if rows["opened"] != live + ended:
        raise StoreError(f"{rows['opened']} groups were opened, but {live} are alive and {ended} ended")
    slots = tx.number(
        "SELECT COUNT(*) FROM slots s JOIN groups g ON g.id = s.group_id WHERE s.state = 'out' AND g.state = 'open' "
        "AND NOT EXISTS (SELECT 1 FROM reservations r "
        "WHERE r.state = 'out' AND r.group_id = s.group_id AND r.slot = s.slot)"
    )
    if slots:
        raise StoreError(f"{slots} slots are out without a reservation")
    if demo_tasks.rules_of(tx) is not None:
        noted = tx.number("SELECT SUM(first_out + mixed_out + policy_out) FROM shown")
        held = tx.number("SELECT COUNT(*) FROM reservations WHERE state = 'out' AND lane = 'demo'")
        if noted != held:
            raise StoreError(f"{noted} attempts at demonstrations are noted as out, {held} are held by seats")
