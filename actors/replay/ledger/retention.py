"""What stays on disk, and what cross-entropy phases learn from.

Invariant: a payload is dropped only when its group (or round) has ended for good some steps ago and no reservoir holds
it, after the transaction that says so is durable. A segment file is deleted only when nothing in it is live and no
writer can still have it open.

Cloning learns from well-formed steps of successful demonstrations. A pulse learns from those of successful training
episodes and, where the deploy file says so, of some demonstrations, or it would unlearn kinds that RL hardly solves.
Episodes committed after a phase segment began are not in it, so its epochs stay the same. An answer longer than a
sampler would draw is left out: the policy could never end it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Row, Transaction
from actors.replay.messages import Lane, Phase, StepRef
from actors.replay.rules.groups import choose, minibatch, place
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


def collect(tx: Transaction) -> int:
    """Mark payloads that are no longer needed; returns how many episodes. After `AT_ONCE` of them call it again."""
    rules = tx.rules
    let_go(tx)
    before = tx.trained.step - rules.keep_payload_steps
    # Where no step comes about (every group of zero variance), later groups tell the time instead.
    followed = tx.counter("opened") - (rules.keep_payload_steps + rules.max_staleness + 1) * rules.groups_per_step
    done = tx.rows(
        "SELECT e.seq, e.token FROM episodes e LEFT JOIN groups g ON g.id = e.group_id "
        "LEFT JOIN rounds r ON r.id = e.round_id WHERE e.live = 1 AND e.place IS NULL AND "
        "CASE e.lane WHEN ? THEN g.final = 1 AND (max(g.ended_step, e.ended_step) <= ? OR g.id <= ?) "
        # What was missed before is shown next to what is solved after: the first round's episodes stay.
        "WHEN ? THEN r.closed = 1 AND r.id > (SELECT min(id) FROM rounds) AND e.ended_step <= ? "
        "ELSE e.ended_step <= ? END LIMIT ?",
        Lane.TRAIN, before, followed, Lane.EVAL, before, before, AT_ONCE,
    )  # fmt: skip
    for row in done:
        tx.execute("UPDATE episodes SET live = 0 WHERE seq = ?", row["seq"])
        _add_references(tx, _blobs(load_steps(tx, row["token"])), -1)
    return len(done)


def _blobs(steps: list[StepRef]) -> Iterable[BlobRef]:
    return (blob for step in steps for blob in step.blobs)


def _add_references(tx: Transaction, blobs: Iterable[BlobRef], by: int) -> None:
    # A blob may have several owners.
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


# In the column `well_formed` of a step that can't be read: it was well formed, and nothing is learned from it.
UNREADABLE = 2


def _since_pulse(tx: Transaction, segments: list[LedgerPhaseSegment]) -> list[int]:
    """The roots of `segments` (newest first) back to the last pulse: whose successes a pulse after them learns from."""
    return [segment.root for segment in takewhile(lambda one: not _pulsed(tx, one), segments)]


def _pulsed(tx: Transaction, segment: LedgerPhaseSegment) -> bool:
    """Whether `segment` is a pulse that was not undone."""
    return segment.phase is Phase.PULSE and not tx.trial_left(segment)


def let_go(tx: Transaction) -> int:
    """Give up the reservoirs of segments that nothing will learn from any more; how many episodes were in them.

    A pulse has learned from what came before it once a checkpoint holds the segment that follows: no resume goes back
    before that one. Segments that a resume undid are on no path.
    """
    path = tx.path()
    lineages, saved = tx.lineages(), tx.checkpointed
    learned = len(path)
    for n in range(len(path) - 1, 0, -1):
        follows = path[n - 1].start
        if _pulsed(tx, path[n]) and saved is not None and not lineages.abandoned(saved, follows):
            learned = n
    needed = {segment.root for segment in path[:learned]}
    unneeded = [row["stay"] for row in tx.rows("SELECT DISTINCT stay FROM reservoirs") if row["stay"] not in needed]
    gone = 0
    for root in unneeded:
        gone += tx.execute(
            "UPDATE episodes SET place = NULL WHERE place IS NOT NULL AND lane = ? AND stay = ?", Lane.TRAIN, root
        ).rowcount
        tx.execute("DELETE FROM reservoirs WHERE stay = ?", root)
    return gone


def count_successes(tx: Transaction) -> int:
    """How many trajectories a pulse that began now could choose from."""
    sql = "SELECT COUNT(*) FROM episodes WHERE place IS NOT NULL AND lane = ? AND stay = ?"
    return sum(tx.number(sql, Lane.TRAIN, root) for root in _since_pulse(tx, tx.path()))


def _kept_successes(tx: Transaction, segments: list[LedgerPhaseSegment], bound: int) -> list[Row]:
    """Reservoir members of the segments back to the last pulse, committed up to `bound`, by task and sequence."""
    sql = "SELECT seq, token, task FROM episodes WHERE place IS NOT NULL AND lane = ? AND stay = ? AND seq <= ?"
    rows = [row for root in _since_pulse(tx, segments) for row in tx.rows(sql, Lane.TRAIN, root, bound)]
    return sorted(rows, key=lambda row: (row["task"], row["seq"]))


def tokens(tx: Transaction, segment: LedgerPhaseSegment) -> list[int]:
    """The episodes that `segment`, the current one, learns from."""
    root, seed = tx.segment(segment.root), tx.settings.seed
    rows = tx.rows(
        "SELECT token FROM episodes WHERE lane = ? AND success = 1 AND seq <= ? ORDER BY seq", Lane.DEMO, root.seq_bound
    )
    demos = [row["token"] for row in rows]
    if segment.phase is Phase.BC:
        return demos
    by_task: dict[str, list[int]] = {}
    for row in _kept_successes(tx, tx.path()[1:], root.seq_bound):
        by_task.setdefault(row["task"], []).append(row["token"])
    own = [
        token
        for task, candidates in by_task.items()
        for token in choose(candidates, tx.rules.pulse_per_task, stable_seed(seed, "pulse", root.idx, task))
    ]
    return own + choose(demos, tx.rules.pulse_demos, stable_seed(seed, "pulse's demonstrations", root.idx))


def _places(tx: Transaction, segment: LedgerPhaseSegment) -> list[tuple[int, int]]:
    """Token and number of the pool's steps. Raises LedgerError where all are too long or can't be read."""
    if tx.pool is None or tx.pool[0] != segment.root:
        places: list[tuple[int, int]] = []
        longest, too_long, unreadable = 0, 0, 0
        for token in tokens(tx, segment):
            for row in tx.rows(
                "SELECT n, ref, well_formed FROM steps WHERE token = ? AND well_formed ORDER BY n", token
            ):
                if row["well_formed"] == UNREADABLE:
                    unreadable += 1
                    continue
                length = msgspec.msgpack.decode(row["ref"], type=StepRef).response_tokens
                if length <= tx.settings.sampling.max_new_tokens:
                    places.append((token, row["n"]))
                else:
                    longest, too_long = max(longest, length), too_long + 1
        if unreadable and not places:
            raise LedgerError(
                f"none of the {unreadable} steps to learn from can be read: files of the run's segments are missing or"
                " changed (event payloads_unreadable); put them back, or begin a new run"
            )
        if too_long:
            most = tx.settings.sampling.max_new_tokens
            if not places:
                raise LedgerError(f"no answer to learn fits sampling.max_new_tokens {most}: the longest has {longest}")
            tx.emit(events.ANSWERS_TOO_LONG, left_out=too_long, learned=len(places), longest=longest, most=most)
        tx.pool = (segment.root, places)
    return tx.pool[1]


def draw_samples(tx: Transaction, segment: LedgerPhaseSegment, batch: int) -> list[StepRef]:
    """Minibatch number `batch` of a cross-entropy segment; empty when there is nothing to learn from."""
    places = _places(tx, segment)
    if not places:
        return []
    seed = stable_seed(tx.settings.seed, "minibatches", segment.root)
    refs = []
    for pick in minibatch(len(places), batch, tx.rules.sft_batch_size, seed):
        row = tx.row("SELECT ref FROM steps WHERE token = ? AND n = ?", *places[pick])
        assert row is not None
        refs.append(msgspec.msgpack.decode(row["ref"], type=StepRef))
    return refs
