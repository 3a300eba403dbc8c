"""Demonstrations in and out of a ledger, so that runs and seeds can share one recording.

Invariant: an imported demonstration is byte for byte what was exported (digests are checked). It was made in the same
prompt format with the same tokenizer. It is held once, whatever file it came in. A file that is not sound adds nothing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.errors import LedgerError
from actors.replay import events, observed
from actors.replay.database.transaction import Transaction
from actors.replay.demos import demo_files
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader, TaskAttempts
from actors.replay.ledger import demo_tasks
from actors.replay.ledger.retention import store_steps
from actors.replay.messages import DemosMoved, Lane, PhaseRef, Reservation, Sampling, StepRef
from actors.replay.rules.cold_start import AttemptTally, DemoTask
from actors.replay.rules.strata import family_of, name_of
from runtime.errors import PayloadLost, StoreError
from runtime.segments import SegmentStore


def label(tx: Transaction) -> None:
    """Write down, once, what the ledger's demonstrations are made with, and which observations its desktops show."""
    observed.opened(tx, labelled=tx.meta("form") is not None)
    made = tx.settings
    for key, value in (("tokenizer", made.tokenizer), ("form", made.format), ("actions", made.action_space)):
        if not tx.meta(key):
            tx.set_meta(key, value)


def import_demos(tx: Transaction, path: Path, segments: SegmentStore, run_dir: Path) -> DemosMoved:
    """Add demonstrations of `path` (see `demo_files.read`) until `demos.count` are stored; known ones are passed by.

    Demonstrations of a run that can't be read are passed by, too, with an event.

    Raises StoreError when it is missing, torn or of another form of file, LedgerError for another tokenizer, form of
    prompts or action space; nothing is added then.
    """
    wanted = tx.settings.demos.count - tx.counter("demos")
    if wanted <= 0:  # also after a restart, when the recording may be gone
        return DemosMoved(demos=0)
    lost: list[PayloadLost] = []
    header, found = demo_files.read(path, lost.append)
    made_for = tx.settings
    refuse_foreign(path, header, tokenizer=made_for.tokenizer, form=made_for.format, actions=made_for.action_space)
    held = {row["digest"] for row in tx.rows("SELECT digest FROM imports")}
    later = bool(held)
    if tx.counter("demo_attempts"):
        held |= {demo.digest for demo in demo_files.read(run_dir, lambda _: None)[1]}
    added = 0
    solved: set[str] = set()
    for demo in found:  # to its end: one that was cut short adds nothing
        if problem := demo_files.unfit(demo):
            raise StoreError(f"{path}: {demo.task}: {problem}")
        if added < wanted and demo.digest not in held:
            _add(tx, demo, [_stored(step, segments) for step in demo.steps])
            held.add(demo.digest)
            solved.add(demo.task)
            added += 1
    if added:
        observed.taken_in(tx, header.observations, later=later)
    if lost:
        tx.emit(events.DEMOS_UNREADABLE, path=str(path), demos=len(lost), cause=str(lost[0]))
    if lost and not added:
        raise StoreError(f"{path}: none of its demonstrations can be read: {lost[0]}")
    # Of a recording that was not taken in whole, only the tasks of what was; those never solved have nothing to take.
    demo_tasks.take_in(
        tx, [_demo_task(one) for one in header.tasks if one.task in solved or not one.wins + one.mixed_wins]
    )
    segments.flush()
    tx.emit(events.DEMOS_TAKEN_IN, path=str(path), demos=added)
    return DemosMoved(demos=added)


def refuse_foreign(path: Path, header: RecordingHeader, *, tokenizer: str, form: str, actions: str) -> None:
    """Raise LedgerError unless both sides agree; "" on either side agrees with anything."""
    if header.tokenizer and tokenizer and header.tokenizer != tokenizer:
        raise LedgerError(
            f"{path} was recorded with tokenizer {header.tokenizer}, the model has {tokenizer}: record anew"
        )
    if header.form and form and header.form != form:
        raise LedgerError(f"{path} was recorded in form {header.form}, prompt.format is {form}: record anew")
    if header.actions and actions and header.actions != actions:
        raise LedgerError(
            f"{path} was recorded with actions {header.actions}, prompt.action_space is {actions}: record anew"
        )


def _demo_task(one: TaskAttempts) -> DemoTask:
    return DemoTask(
        task=one.task,
        first=AttemptTally(tries=one.tries, wins=one.wins),
        mixed=AttemptTally(tries=one.mixed_tries, wins=one.mixed_wins),
    )


def _stored(step: DemoStep, segments: SegmentStore) -> StepRef:
    return StepRef(
        blob=segments.append(msgspec.msgpack.encode(step.payload)),
        prompt_tokens=len(step.payload.prompt_ids),
        response_tokens=len(step.payload.response_ids),
        well_formed=step.well_formed,
        oldest=None,
    )


def _add(tx: Transaction, demo: Demo, steps: list[StepRef]) -> None:
    segment = tx.segment()
    token = 1 + tx.number("SELECT seq FROM sqlite_sequence WHERE name = 'reservations'")
    reply = Reservation(
        token=token,
        lane=Lane.DEMO,
        task=demo.task,
        group="",
        slot=0,
        seed=0,
        sampling=Sampling(temperature=1.0, max_new_tokens=0),
        max_turns=len(steps),
        pin=None,
        phase=PhaseRef(phase=segment.phase, index=segment.idx),
        route=demo.route,
        member=demo.member,
    )
    tx.execute(
        "INSERT INTO reservations(token, request_id, seat, lane, task, stay, slot, state, expires, reply) "
        "VALUES(?, ?, 'import', ?, ?, ?, 0, 'committed', ?, ?)",
        token, f"import/{demo.digest}", Lane.DEMO, demo.task, segment.idx, tx.now,
        msgspec.msgpack.encode(reply),
    )  # fmt: skip
    tx.execute(
        "INSERT INTO episodes(token, lane, task, stay, success, feasible, reason, wall_s, busy_s, ended_step, place) "
        "VALUES(?, ?, ?, ?, 1, 1, ?, ?, ?, ?, 0)",
        token, Lane.DEMO, demo.task, segment.idx, demo.reason, demo.wall_s, demo.busy_s, tx.trained.step,
    )  # fmt: skip
    store_steps(tx, token, steps)
    tx.execute("INSERT INTO imports VALUES(?, 1)", demo.digest)
    stratum = name_of(family_of(demo.task), demo.member or demo.route)
    for counter in ("demos", f"episodes:{Lane.DEMO}", f"demos:{stratum}"):
        tx.count(counter)
