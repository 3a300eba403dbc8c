"""How much disk a run takes: beyond `replay.disk_gib` payloads are given up.

Invariant: the oldest successes go first, then what has ended. A group that may still be trained on stays, and so does a
demonstration. Everything that the present phase segment learns from stays. The log says what was given up and what
could not be.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.replay import events
from actors.replay.database.transaction import Row, Transaction
from actors.replay.ledger import retention, sft_batches
from actors.replay.messages import Lane, Phase

GIB = 1 << 30
_TOLD = "disk_bound_told"  # that the bound can't be kept was said, and has not been mended since
_SUCCESSES = (
    "SELECT e.seq, e.token FROM episodes e JOIN groups g ON g.id = e.group_id "
    "WHERE e.place IS NOT NULL AND e.lane = ? AND g.final = 1 ORDER BY e.seq"
)
_ENDED = (
    "SELECT e.seq, e.token FROM episodes e LEFT JOIN groups g ON g.id = e.group_id "
    "LEFT JOIN rounds r ON r.id = e.round_id WHERE e.live = 1 AND e.place IS NULL "
    "AND CASE e.lane WHEN ? THEN g.final = 1 WHEN ? THEN r.closed = 1 ELSE 1 END ORDER BY e.seq"
)


def keep_within(tx: Transaction, run: Path) -> None:
    """Give payloads up until the folder `run` is within its bound; their space comes back by the next sweep."""
    if not tx.rules.disk_gib:
        return
    over = used_bytes(run) - int(tx.rules.disk_gib * GIB)
    if over <= 0:
        tx.execute("DELETE FROM meta WHERE key = ?", _TOLD)
        return
    waiting = tx.number("SELECT SUM(size) FROM blobs WHERE refs <= 0")  # given up, not yet swept
    present = set(sft_batches.tokens(tx, tx.segment())) if tx.segment().phase is Phase.PULSE else set[int]()
    freed, successes, others = waiting, 0, 0
    for row in tx.rows(_SUCCESSES, Lane.TRAIN):
        if freed >= over:
            break
        if row["token"] not in present:
            freed, successes = freed + _give_up(tx, row), successes + 1
    for row in tx.rows(_ENDED, Lane.TRAIN, Lane.EVAL) if freed < over else ():
        if freed >= over:
            break
        freed, others = freed + _give_up(tx, row), others + 1
    gib = tx.rules.disk_gib
    if successes or others:
        tx.emit(
            events.DISK_BOUND_REACHED, disk_gib=gib, over_bytes=over, freed_bytes=freed - waiting,
            successes=successes, others=others,
        )  # fmt: skip
    if freed < over and not tx.meta(_TOLD):
        tx.set_meta(_TOLD, "1")
        needed = tx.number("SELECT SUM(size) FROM blobs WHERE refs > 0")
        tx.emit(
            events.DISK_BOUND_EXCEEDED, disk_gib=gib, over_bytes=over - freed, phase=tx.segment().phase,
            needed_bytes=needed,
        )  # fmt: skip


def used_bytes(folder: Path) -> int:
    """Disk that the files below `folder` take, holes left out; a file that is being removed counts nothing."""
    total = 0
    seen: set[int] = set()  # weights that are kept are links to those that were exported
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(where, name))
            except FileNotFoundError:
                continue
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_blocks * 512
    return total


def _give_up(tx: Transaction, row: Row) -> int:
    tx.execute("UPDATE episodes SET place = NULL WHERE seq = ?", row["seq"])
    return retention.give_up(tx, row)
