"""Phase changes: the ledger holds the only truth about them.

Invariant: there is one current stay; a change names the stay it leaves, so of two that race one is refused, and
whatever was open or ready for the stay that ends, ends with it.
"""

from __future__ import annotations

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database.transaction import Book, Stay
from actors.replay.ledger import demo_tasks
from actors.replay.ledger import step_evidence as pace
from actors.replay.messages import Phase, PhaseRef, Serving, SetPhase
from actors.replay.rules.groups import GroupEnding, GroupState
from runtime.messaging.message import Done


def begin(book: Book) -> None:
    """The first stay of a new ledger."""
    book.execute("INSERT INTO lineages VALUES(0, NULL)")
    book.set_meta("trained", "0.0")
    _enter(book, Phase.DEMO, 0, root=0, steps=None, cause="begin", evidence={})


def set_phase(book: Book, msg: SetPhase) -> Done:
    """Go to the next stay; a repeat changes nothing.

    Raises LedgerError unless `expected` is the current stay and `next` follows it.
    """
    stay = book.stay()
    if stay.ref == msg.next:
        return Done()
    if stay.ref != msg.expected:
        raise LedgerError(f"the phase is {_name(stay.ref)}, not {_name(msg.expected)}")
    if msg.next.index != stay.idx + 1:
        raise LedgerError(f"after {_name(stay.ref)} comes stay {stay.idx + 1}, not {msg.next.index}")
    _close(book)
    if stay.phase is Phase.DEMO:
        demo_tasks.log(book)
    _enter(book, msg.next.phase, msg.next.index, root=msg.next.index, steps=msg.steps, cause=msg.cause,
           evidence=msg.evidence, before=stay)  # fmt: skip
    return Done()


def rewind(book: Book) -> None:
    """After a resume: if the learner's weights are older than the current stay, re-enter the stay they belong to."""
    lineages, trained, stay = book.lineages(), book.trained, book.stay()
    found = stay
    while lineages.abandoned(trained, found.start):
        found = book.stay(found.root - 1)
    if found.idx == stay.idx:
        return
    _close(book)
    _enter(
        book, found.phase, stay.idx + 1, root=found.root, steps=found.own_limit, cause="resumed",
        evidence={"resumed_stay": float(found.root)}, before=stay,
    )  # fmt: skip


def _close(book: Book) -> None:
    for row in book.groups_in(GroupState.OPEN, GroupState.READY):
        book.end_group(row, GroupEnding.PHASE_CLOSED)


def _enter(
    book: Book,
    phase: Phase,
    idx: int,
    *,
    root: int,
    steps: int | None,
    cause: str,
    evidence: dict[str, float],
    before: Stay | None = None,
) -> None:
    bound = book.number("SELECT seq FROM sqlite_sequence WHERE name = 'episodes'")
    book.execute("UPDATE counters SET value = 0 WHERE name = 'wasted'")
    start = book.trained if root == idx else book.stay(root).start
    book.execute(
        "INSERT INTO stays VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
        idx, root, phase, steps, str(start), bound, cause, msgspec.json.encode(evidence).decode(), book.wall,
    )  # fmt: skip
    pace.mark(book)
    if before is not None:
        book.emit(events.PHASE_CHANGED, phase=phase, index=idx, before=before.phase, cause=cause, evidence=evidence)


def _name(phase: PhaseRef) -> str:
    return f"{phase.phase}/{phase.index}"


def serving(book: Book, msg: Serving) -> Done:
    """A sampler says what it serves."""
    book.execute("INSERT OR REPLACE INTO samplers VALUES(?, ?, ?)", msg.sampler, str(msg.version), book.now)
    return Done()


def forget_silent(book: Book) -> float | None:
    """Drop samplers that have said nothing for long, so that they hold nothing back; when the next will be due."""
    limit_s = book.rules.sampler_silent_s
    for row in book.rows("SELECT * FROM samplers WHERE heard <= ?", book.now - limit_s):
        book.execute("DELETE FROM samplers WHERE name = ?", row["name"])
        silent_s = book.now - row["heard"]
        book.emit(events.SAMPLER_SILENT, sampler=row["name"], version=row["version"], silent_s=silent_s)
    first = book.row("SELECT MIN(heard) FROM samplers")
    return None if first is None or first[0] is None else float(first[0]) + limit_s


def close_run(book: Book) -> Done:
    """Nothing new from now on, until the run is resumed."""
    if not book.closed and book.stay().phase is Phase.DEMO:
        demo_tasks.log(book)
    book.set_meta("closed", "1")
    return Done()
