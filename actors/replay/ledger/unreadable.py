"""What the ledger does about payloads that the learner can't read.

Invariant: an unreadable payload ends its group as `lost`, or leaves the steps that cloning and pulses learn from. It
is never handed out again, so it costs the run one batch and never the run.
"""

from __future__ import annotations

import msgspec

from actors.errors import FencedOff
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Transaction
from actors.replay.ledger import training
from actors.replay.ledger.retention import load_steps
from actors.replay.ledger.sft_batches import UNREADABLE, tokens
from actors.replay.messages import Batch, StepRef, Unreadable
from actors.replay.rules.groups import GroupEnding
from runtime.messaging.message import BlobRef, Done

STATE = "unreadable"  # of the lease


def report(tx: Transaction, msg: Unreadable) -> Done:
    """End what can't be read and give the rest of the lease back. A repeat changes nothing.

    Raises FencedOff when the lease is not outstanding.
    """
    lease = tx.row("SELECT * FROM leases WHERE id = ?", msg.lease)
    if lease is None or lease["state"] not in ("out", STATE):
        raise FencedOff(f"lease {msg.lease} is not outstanding")
    if lease["state"] == STATE:
        return Done()
    batch = msgspec.msgpack.decode(lease["reply"], type=Batch)
    bad = set(msg.blobs)
    lost = 0
    for group in tx.rows("SELECT * FROM groups WHERE lease = ? AND state = 'leased'", msg.lease):
        if _holds(tx, group["id"], bad):
            tx.end_group(group, GroupEnding.LOST)
            lost += 1
    samples = _leave_out(tx, tx.segment(lease["stay"]), bad) if batch.samples else 0
    tx.emit(
        events.PAYLOADS_UNREADABLE, lease=msg.lease, phase=batch.phase.phase, groups=lost, samples=samples,
        segments=sorted({blob.segment for blob in bad}), cause=msg.cause,
    )  # fmt: skip
    training.give_back(tx, lease, "payloads can't be read")
    tx.execute("UPDATE leases SET state = ? WHERE id = ?", STATE, msg.lease)
    return Done()


def _holds(tx: Transaction, group: int, bad: set[BlobRef]) -> bool:
    tokens = [row["token"] for row in tx.rows("SELECT token FROM episodes WHERE group_id = ?", group)]
    return any(step.blob in bad for token in tokens for step in load_steps(tx, token))


def _leave_out(tx: Transaction, segment: LedgerPhaseSegment, bad: set[BlobRef]) -> int:
    """Take steps out of the pool of `segment`; how many. A ledger that has just begun again holds no pool in memory."""
    found = [
        (UNREADABLE, token, row["n"])
        for token in tokens(tx, segment)
        for row in tx.rows("SELECT n, ref FROM steps WHERE token = ? AND well_formed = 1", token)
        if msgspec.msgpack.decode(row["ref"], type=StepRef).blob in bad
    ]
    tx.many("UPDATE steps SET well_formed = ? WHERE token = ? AND n = ?", found)
    tx.pool = None
    return len(found)
