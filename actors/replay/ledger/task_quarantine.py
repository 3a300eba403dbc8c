"""The tasks' quarantine in the ledger.

Invariant: a decision of `runtime.supervision` stands in one transaction with what it ends. It ends the open groups of a
task that is quarantined, as `lost`. A task without faults has no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.replay import events
from actors.replay.database.transaction import Row, Transaction
from actors.replay.messages import Fault
from actors.replay.rules.groups import GroupEnding, GroupState
from actors.replay.rules.reservoir import nth_of_epochs
from runtime.supervision import Quarantine, QuarantinePolicy, QuarantineState

POLICY = QuarantinePolicy(faults_in_a_row=3, first_probe_s=60.0, longest_probe_s=3600.0)
CULPRIT = "task"


def quarantine(tx: Transaction, task: str) -> Quarantine:
    """How a task stands."""
    row = tx.row("SELECT * FROM wards WHERE task = ?", task)
    return Quarantine() if row is None else _read(row)


def quarantined(tx: Transaction) -> dict[str, Quarantine]:
    """The tasks that are quarantined, those that are being probed too."""
    return {row["task"]: _read(row) for row in tx.rows("SELECT * FROM wards WHERE state != 'well' ORDER BY task")}


def unplayable(tx: Transaction) -> dict[str, Quarantine]:
    """The tasks that may not be handed out now."""
    return {task: stands for task, stands in quarantined(tx).items() if not stands.usable(tx.now)}


def playable(tx: Transaction, task: str) -> bool:
    """Whether a task may be handed out now."""
    return quarantine(tx, task).usable(tx.now)


def next_playable(tx: Transaction, tasks: Sequence[str], number: int, seed: int) -> tuple[str, int] | None:
    """The first of endless epochs over `tasks` from `number` on that may be played, and how many were passed over.

    None when all are quarantined. From the middle of an epoch on it takes nearly two of them to come by every task.
    """
    for passed in range(2 * len(tasks) - 1):
        task = nth_of_epochs(tasks, number + passed, seed)
        if playable(tx, task):
            return task, passed
    return None


def handed_out(tx: Transaction, task: str, token: int) -> None:
    """An episode of the task was handed out."""
    before = quarantine(tx, task)
    _write(tx, task, before, before.began(token))


def ended(tx: Transaction, reservation: Row) -> None:
    """An episode came to an outcome."""
    task, token = reservation["task"], reservation["token"]
    before = quarantine(tx, task)
    after = before.ended(token, POLICY)
    _write(tx, task, before, after)
    if before.quarantined and not after.quarantined:
        tx.emit(events.TASK_LET_BACK, task=task, failed_probes=before.failed_probes)


def broken(tx: Transaction, reservation: Row, fault: Fault) -> None:
    """Infrastructure broke an episode; a task that is quarantined loses its open groups."""
    task, token = reservation["task"], reservation["token"]
    before = quarantine(tx, task)
    after = before.faulted(token, POLICY, tx.now, own=fault.culprit == CULPRIT)
    _write(tx, task, before, after)
    if after.state is not QuarantineState.QUARANTINED or after == before or after.probe_at <= tx.now:
        return
    tx.emit(
        events.TASK_QUARANTINED, task=task, cause=fault.cause, detail=fault.detail, faults=after.streak,
        failed_probes=after.failed_probes, probe_s=after.probe_at - tx.now,
    )  # fmt: skip
    for row in tx.groups_in(GroupState.OPEN):
        if row["task"] == task:
            tx.end_group(row, GroupEnding.LOST)


def _write(tx: Transaction, task: str, before: Quarantine, after: Quarantine) -> None:
    if after == before:
        return
    if after == Quarantine():
        tx.execute("DELETE FROM wards WHERE task = ?", task)
        return
    tx.execute(
        "INSERT OR REPLACE INTO wards VALUES(?, ?, ?, ?, ?, ?)",
        task, after.state, after.streak, after.failed_probes, after.probe_at, after.probe,
    )  # fmt: skip


def _read(row: Row) -> Quarantine:
    return Quarantine(
        state=QuarantineState(row["state"]),
        streak=row["streak"],
        failed_probes=row["failed_probes"],
        probe_at=row["probe_at"],
        probe=row["probe"],
    )
