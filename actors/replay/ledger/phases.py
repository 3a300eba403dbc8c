"""Phase changes: the ledger holds the only truth about them.

Invariant: there is one current phase segment. A change names the segment it leaves, so of two racing changes the ledger
refuses one. Open and ready groups of a segment end with it.
"""

from __future__ import annotations

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database.transaction import LedgerPhaseSegment, Transaction
from actors.replay.ledger import demo_tasks
from actors.replay.ledger import step_evidence as pace
from actors.replay.messages import Phase, PhaseRef, Serving, SetPhase
from actors.replay.rules.groups import GroupEnding, GroupState
from runtime.messaging.message import Done


def begin(tx: Transaction) -> None:
    """The first segment of a new ledger."""
    tx.execute("INSERT INTO lineages VALUES(0, NULL)")
    tx.set_meta("trained", "0.0")
    _enter(tx, Phase.DEMO, 0, root=0, steps=None, cause="begin", evidence={})


def set_phase(tx: Transaction, msg: SetPhase) -> Done:
    """Go to the next segment; a repeat changes nothing.

    Raises LedgerError unless `expected` is the current segment and `next` follows it.
    """
    segment = tx.segment()
    if segment.ref == msg.next:
        return Done()
    if segment.ref != msg.expected:
        raise LedgerError(f"the phase is {_name(segment.ref)}, not {_name(msg.expected)}")
    if msg.next.index != segment.idx + 1:
        raise LedgerError(f"after {_name(segment.ref)} comes segment {segment.idx + 1}, not {msg.next.index}")
    _close(tx)
    if segment.phase is Phase.DEMO:
        demo_tasks.log(tx)
    _enter(tx, msg.next.phase, msg.next.index, root=msg.next.index, steps=msg.steps, cause=msg.cause,
           evidence=msg.evidence, before=segment)  # fmt: skip
    return Done()


def rewind(tx: Transaction) -> None:
    """After a resume: re-enter the segment of the learner's weights if they are older than the current segment."""
    lineages, trained, segment = tx.lineages(), tx.trained, tx.segment()
    found = segment
    while lineages.abandoned(trained, found.start):
        found = tx.segment(found.root - 1)
    if found.idx == segment.idx:
        return
    _close(tx)
    _enter(
        tx, found.phase, segment.idx + 1, root=found.root, steps=found.own_limit, cause="resumed",
        evidence={"resumed_stay": float(found.root)}, before=segment,
    )  # fmt: skip


def _close(tx: Transaction) -> None:
    for row in tx.groups_in(GroupState.OPEN, GroupState.READY):
        tx.end_group(row, GroupEnding.PHASE_CLOSED)


def _enter(
    tx: Transaction,
    phase: Phase,
    idx: int,
    *,
    root: int,
    steps: int | None,
    cause: str,
    evidence: dict[str, float],
    before: LedgerPhaseSegment | None = None,
) -> None:
    bound = tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'")
    tx.execute("UPDATE counters SET value = 0 WHERE name = 'wasted'")
    start = tx.trained if root == idx else tx.segment(root).start
    tx.execute(
        "INSERT INTO stays VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
        idx, root, phase, steps, str(start), bound, cause, msgspec.json.encode(evidence).decode(), tx.wall,
    )  # fmt: skip
    pace.mark(tx)
    if before is not None:
        tx.emit(events.PHASE_CHANGED, phase=phase, index=idx, before=before.phase, cause=cause, evidence=evidence)


def _name(phase: PhaseRef) -> str:
    return f"{phase.phase}/{phase.index}"


def serving(tx: Transaction, msg: Serving) -> Done:
    """A sampler says what it serves; of one that is gone for good, nothing."""
    if msg.version is None:
        tx.execute("DELETE FROM samplers WHERE name = ?", msg.sampler)
        return Done()
    tx.execute("INSERT OR REPLACE INTO samplers VALUES(?, ?, ?)", msg.sampler, str(msg.version), tx.now)
    return Done()


def forget_silent(tx: Transaction) -> float | None:
    """Drop samplers that have said nothing for long, so that they hold nothing back; when the next will be due."""
    limit_s = tx.rules.sampler_silent_s
    for row in tx.rows("SELECT * FROM samplers WHERE heard <= ?", tx.now - limit_s):
        tx.execute("DELETE FROM samplers WHERE name = ?", row["name"])
        silent_s = tx.now - row["heard"]
        tx.emit(events.SAMPLER_SILENT, sampler=row["name"], version=row["version"], silent_s=silent_s)
    first = tx.row("SELECT MIN(heard) FROM samplers")
    return None if first is None or first[0] is None else float(first[0]) + limit_s


def close_run(tx: Transaction) -> Done:
    """Nothing new from now on, until the run is resumed."""
    if not tx.closed and tx.segment().phase is Phase.DEMO:
        demo_tasks.log(tx)
    tx.set_meta("closed", "1")
    return Done()
