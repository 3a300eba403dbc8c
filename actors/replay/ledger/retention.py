"""What stays on disk: rows for ever, payloads while a part of the run may read them.

Invariant: a payload is dropped only when its group (or round) has ended for good some steps ago and no reservoir holds
it. It is dropped after the transaction that says so is durable. A segment file is deleted only when nothing in it is
live and no writer can still have it open.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from actors.replay import events
from actors.replay.database.transaction import Row, Transaction
from actors.replay.ledger import sft_batches
from actors.replay.messages import Lane, StepRef
from actors.replay.rules.reservoir import place
from runtime.errors import StoreError
from runtime.messaging.message import BlobRef
from runtime.segments import free_blob
from runtime.settings import stable_seed

AT_ONCE = 256  # episodes or payloads in one transaction, which others wait for


def store_steps(tx: Transaction, token: int, steps: list[StepRef]) -> None:
    """Rows for an episode's steps; their payloads are live from now on."""
    tx.many(
        "INSERT INTO steps(token, n, well_formed, ref) VALUES(?, ?, ?, ?)",
        [(token, n, step.well_formed, msgspec.msgpack.encode(step)) for n, step in enumerate(steps)],
    )
    _add_references(tx, _blobs(steps), 1)


def load_steps(tx: Transaction, token: int) -> list[StepRef]:
    """An episode's steps in order."""
    rows = tx.rows("SELECT ref FROM steps WHERE token = ? ORDER BY n", token)
    return [msgspec.msgpack.decode(row["ref"], type=StepRef) for row in rows]


def keep_success(tx: Transaction, seq: int, root: int, task: str) -> None:
    """Offer a success to the reservoir of its (segment, task); the one it displaces may be collected later."""
    seen = tx.number("SELECT seen FROM reservoirs WHERE stay = ? AND task = ?", root, task)
    tx.execute(
        "INSERT INTO reservoirs(stay, task, seen) VALUES(?, ?, 1) ON CONFLICT DO UPDATE SET seen = seen + 1", root, task
    )
    where = place(seen, tx.rules.reservoir_per_task, stable_seed(tx.settings.seed, "reservoir", root, task, seen))
    if where is not None:
        tx.execute("UPDATE episodes SET place = NULL WHERE stay = ? AND task = ? AND place = ?", root, task, where)
        # Filed under the root segment, so that a phase which a resume cut in two has one reservoir per task.
        tx.execute("UPDATE episodes SET stay = ?, place = ? WHERE seq = ?", root, where, seq)


def note_failure(tx: Transaction, seq: int, root: int, task: str) -> None:
    """An episode of the (segment, task) failed: the first is remembered, for pulses on what is not yet mastered."""
    tx.execute(
        "INSERT INTO reservoirs(stay, task, seen, failed) VALUES(?, ?, 0, ?) "
        "ON CONFLICT DO UPDATE SET failed = coalesce(failed, excluded.failed)",
        root, task, seq,
    )  # fmt: skip


def collect(tx: Transaction) -> int:
    """Mark payloads that are needed no more; how many episodes gave theirs up. Of `AT_ONCE` there may be more."""
    rules = tx.rules
    sft_batches.let_go(tx)
    before = tx.trained.step - rules.keep_payload_steps
    # Where no step comes about (every group of zero variance), later groups tell the time instead.
    followed = tx.counter("opened") - (rules.keep_payload_steps + rules.max_staleness + 1) * rules.groups_per_step
    done = tx.rows(
        "SELECT e.seq, e.token FROM episodes e LEFT JOIN groups g ON g.id = e.group_id "
        "LEFT JOIN rounds r ON r.id = e.round_id WHERE e.live = 1 AND e.place IS NULL AND "
        "CASE e.lane WHEN ? THEN g.final = 1 AND (max(g.ended_step, e.ended_step) <= ? OR g.id <= ?) "
        "WHEN ? THEN r.closed = 1 AND e.ended_step <= ? ELSE e.ended_step <= ? END LIMIT ?",
        Lane.TRAIN, before, followed, Lane.EVAL, before, before, AT_ONCE,
    )  # fmt: skip
    for row in done:
        give_up(tx, row)
    return len(done)


def give_up(tx: Transaction, row: Row) -> int:
    """An episode's payloads are needed no more; how many bytes come back with the next sweep."""
    tx.execute("UPDATE episodes SET live = 0 WHERE seq = ?", row["seq"])
    blobs = list(_blobs(load_steps(tx, row["token"])))
    _add_references(tx, blobs, -1)
    return sum(blob.size for blob in blobs)


def _blobs(steps: list[StepRef]) -> Iterable[BlobRef]:
    return (blob for step in steps for blob in step.blobs)


def _add_references(tx: Transaction, blobs: Iterable[BlobRef], by: int) -> None:
    # Equal payloads of one writer are stored once, so a blob may have several owners.
    tx.many(
        "INSERT INTO blobs VALUES(?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET refs = refs + excluded.refs",
        [(blob.segment, blob.offset, blob.size, blob.digest, by) for blob in blobs],
    )


def sweep(tx: Transaction, folder: Path) -> int:
    """Give the space of unowned payloads back and delete dead segment files; returns the bytes freed.

    To be run in a transaction after the one of `collect`; at most `AT_ONCE` payloads go, so it is to be run again while
    `unswept`. A writer's newest file stays: it may still grow.
    """
    freed = stuck = 0
    for row in tx.rows("SELECT * FROM blobs WHERE refs <= 0 LIMIT ?", AT_ONCE):
        blob = BlobRef(segment=row["segment"], offset=row["at"], size=row["size"], digest=row["digest"])
        if (folder / blob.segment).exists():
            try:
                free_blob(folder, blob)
                freed += blob.size
            except StoreError:
                stuck += 1  # a file system without holes: the space comes back with the whole segment
        tx.execute(
            "DELETE FROM blobs WHERE segment = ? AND at = ? AND digest = ?", blob.segment, blob.offset, blob.digest
        )
    deleted = _delete_dead(tx, folder)
    if freed or stuck or deleted:
        tx.emit(events.PAYLOADS_COLLECTED, freed_bytes=freed, not_freed=stuck, segments_deleted=deleted)
    return freed


def unswept(tx: Transaction) -> bool:
    """Whether payloads are left to sweep."""
    return tx.row("SELECT 1 FROM blobs WHERE refs <= 0 LIMIT 1") is not None


def _delete_dead(tx: Transaction, folder: Path) -> int:
    """Delete segment files without a live payload; how many.

    An episode in flight may have written to a file before its writer went on to the next file. The ledger hears of it
    when the episode is committed. So a file is noted first. It goes when no episode is left that was in flight then.
    """
    files = sorted(folder.glob("*.seg"))
    newest = {writer_of(path.name): path.name for path in files}
    handed_out = tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    for path in files:
        if path.name == newest[writer_of(path.name)] or tx.row(
            "SELECT 1 FROM blobs WHERE segment = ? LIMIT 1", path.name
        ):  # fmt: skip
            tx.execute("DELETE FROM dead_segments WHERE segment = ?", path.name)
        else:
            tx.execute("INSERT OR IGNORE INTO dead_segments VALUES(?, ?)", path.name, handed_out)
    out = tx.rows("SELECT token FROM reservations INDEXED BY reservations_out WHERE state = 'out'")
    oldest = min((row["token"] for row in out), default=0)
    dead = tx.rows("SELECT segment FROM dead_segments WHERE ? = 0 OR token < ?", oldest, oldest)
    for row in dead:
        (folder / row["segment"]).unlink(missing_ok=True)
        tx.execute("DELETE FROM dead_segments WHERE segment = ?", row["segment"])
    return len(dead)


def writer_of(segment: str) -> str:
    """Who writes a segment file: its name up to the last dash."""
    return segment.rpartition("-")[0]
