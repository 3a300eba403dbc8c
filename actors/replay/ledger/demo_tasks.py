"""Demonstrations in the ledger: attempts handed out, ended and broken, what the strata say, and recordings taken in.

A task's tallies change in the transaction that hands out, commits or releases its attempt, so the strata are the same
after any kill. The decisions are in `rules/cold_start.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from actors.errors import LedgerError
from actors.replay import events
from actors.replay.database import queries
from actors.replay.database.transaction import Row, Transaction, Work
from actors.replay.demos import demo_files
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader
from actors.replay.ledger import task_choice
from actors.replay.ledger.retention import store_steps
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling, StepRef
from actors.replay.rules import admission, cold_start
from actors.replay.rules.cold_start import AttemptStage, AttemptTally, DemoTask, family_of, name_of
from actors.replay.rules.groups import nth_of_epochs
from apis.observation import OBSERVATION_VERSION
from runtime.errors import PayloadLost, StoreError
from runtime.segments import SegmentStore
from runtime.settings import stable_seed

_COLUMNS = {AttemptStage.FIRST: "first", AttemptStage.MIXED: "mixed", AttemptStage.POLICY: "policy"}


def rules_of(tx: Transaction) -> cold_start.Rules | None:
    """How tasks are tried; None where demonstrations are recorded without strata."""
    demos = tx.settings.demos
    if not demos.attempts_per_task:
        return None
    return cold_start.Rules(
        attempts=demos.attempts_per_task,
        mixed=demos.mixed_attempts,
        resamples=demos.resample_attempts,
        retries=tx.rules.retries,
    )


def rounds_begun(tx: Transaction) -> int:
    """Rounds of resampling on the way to the current segment: its segments of demonstrations but the first."""
    return sum(segment.phase is Phase.DEMO for segment in tx.path()) - 1


def _live(tx: Transaction, rules: cold_start.Rules, rounds: int) -> list[DemoTask]:
    """Tasks that may still be tried or are being tried, in that order. Read at every turn, so others are left out."""
    if rounds:
        rows = tx.rows(
            "SELECT * FROM shown WHERE policy_out > 0 OR (first_wins > 0 AND first_wins < first_tries "
            "AND policy_tries < ?) ORDER BY n",
            rules.resamples * rounds,
        )
    else:
        rows = tx.rows(
            "SELECT * FROM shown WHERE first_out + mixed_out > 0 OR (imported = 0 AND (first_tries < ? "
            "OR (first_wins = 0 AND mixed_tries < ?))) ORDER BY n",
            rules.attempts,
            rules.mixed,
        )
    return [_demo_task(row) for row in rows]


def _demo_task(row: Row) -> DemoTask:
    tallies = {
        name: AttemptTally(tries=row[f"{name}_tries"], wins=row[f"{name}_wins"], out=row[f"{name}_out"])
        for name in _COLUMNS.values()
    }
    return DemoTask(task=row["task"], faults=row["faults"], imported=bool(row["imported"]), **tallies)


def next_attempt(tx: Transaction, rules: cold_start.Rules) -> Work | None:
    """The next attempt at a demonstration, noted as handed out. None when none is called for now."""
    rounds = rounds_begun(tx)
    if rounds and not _policy_is_served(tx):
        return None
    live = _live(tx, rules, rounds)
    for demo_task in live:
        stage = cold_start.next_stage(demo_task, rules, rounds)
        if stage is not None and task_choice.playable(tx, demo_task.task):
            return _attempt(tx, demo_task, stage)
    if rounds or (openable := _openable(tx, rules, live)) is None:
        return None
    task, family, place = openable
    tx.execute("INSERT INTO shown(task) VALUES(?)", task)
    tx.count(f"demos_begun:{family}")
    tx.count(f"demos_place:{family}", place - tx.counter(f"demos_place:{family}"))
    return _attempt(tx, DemoTask(task=task), AttemptStage.FIRST)


def _policy_is_served(tx: Transaction) -> bool:
    segment = tx.segment()
    return admission.serving_is_fresh(tx.served, segment.start, tx.trained, tx.rules.max_staleness, tx.lineages())


def _openable(tx: Transaction, rules: cold_start.Rules, live: list[DemoTask]) -> tuple[str, str, int] | None:
    """A task to begin with, of the family that has begun the fewest: it, the family, and the place after it in the
    family's order. None when no more is to be begun.
    """
    demos = tx.settings.demos
    # A task that is quarantined or set aside may never give any: others take its place.
    able = (
        demo_task
        for demo_task in live
        if not demo_task.imported and (demo_task.out or task_choice.playable(tx, demo_task.task))
    )
    mine = [demo_task for demo_task in able if not cold_start.set_aside(demo_task, rules, 0)]
    pending = sum(rules.attempts - demo_task.first.tries for demo_task in mine)
    opened = tx.number("SELECT COUNT(*) FROM shown WHERE imported = 0")
    most = demos.attempts
    if not cold_start.may_open(
        tx.counter("demos"), pending, opened, count=demos.count, most=most, attempts=rules.attempts
    ):  # fmt: skip
        return None
    begun = {stratum.name: tx.counter(f"demos_begun:{stratum.name}") for stratum in tx.demo_families}
    for stratum in sorted(tx.demo_families, key=lambda stratum: begun[stratum.name]):
        seed = stable_seed(tx.settings.seed, "demo tasks", stratum.name)
        for number in range(tx.counter(f"demos_place:{stratum.name}"), len(stratum.tasks)):
            task = nth_of_epochs(stratum.tasks, number, seed)
            if tx.row("SELECT 1 FROM shown WHERE task = ?", task) is None and task_choice.playable(tx, task):
                return task, stratum.name, number + 1
    return None


def _attempt(tx: Transaction, demo_task: DemoTask, stage: AttemptStage) -> Work:
    family = cold_start.family_of(demo_task.task)
    seed = tx.settings.seed
    if stage is AttemptStage.FIRST:
        names = tx.settings.demo_members.get(family) or [""]
        member = cold_start.member_of(demo_task, names, stable_seed(seed, "members", demo_task.task))
    else:
        member = cold_start.MIXED if stage is AttemptStage.MIXED else cold_start.POLICY
    tally = demo_task.tally(stage)
    number = tally.tries + tally.out + demo_task.faults
    tx.execute(f"UPDATE shown SET {_COLUMNS[stage]}_out = {_COLUMNS[stage]}_out + 1 WHERE task = ?", demo_task.task)  # noqa: S608
    slot = tx.counter("demos_tried")
    tx.count("demos_tried")
    return Work(
        lane=Lane.DEMO,
        task=demo_task.task,
        slot=slot,
        seed=stable_seed(seed, "demo", demo_task.task, stage, number),
        sampling=tx.train_sampling(),
        member=member,
    )


def ended(tx: Transaction, task: str, member: str, *, success: bool) -> None:
    """An attempt came to an outcome."""
    if rules_of(tx) is None:
        return
    name = _COLUMNS[cold_start.stage_of(member)]
    tx.execute(
        f"UPDATE shown SET {name}_out = {name}_out - 1, {name}_tries = {name}_tries + 1, "  # noqa: S608
        f"{name}_wins = {name}_wins + ? WHERE task = ?",
        success,
        task,
    )


def broken(tx: Transaction, task: str, member: str, *, counts: bool) -> None:
    """Infrastructure broke an attempt."""
    name = _COLUMNS[cold_start.stage_of(member)]
    tx.execute(
        f"UPDATE shown SET {name}_out = {name}_out - 1, faults = faults + ? WHERE task = ?",  # noqa: S608
        counts,
        task,
    )


def attempts_left(tx: Transaction) -> int | None:
    """Attempts that the current segment still calls for, 0 when it is over; None without strata.

    A quarantined task is not waited for, unless an attempt at it is in flight.
    """
    rules = rules_of(tx)
    if rules is None or tx.segment().phase is not Phase.DEMO:
        return None
    rounds = rounds_begun(tx)
    live = _live(tx, rules, rounds)
    attempts = 0
    for demo_task in live:
        missing = cold_start.left(demo_task, rules, rounds)
        attempts += missing if missing == 0 or task_choice.playable(tx, demo_task.task) else demo_task.out
    return attempts + (not rounds and _openable(tx, rules, live) is not None)


def counts(tx: Transaction) -> dict[str, int]:
    """`family/stratum` -> tasks; empty without strata."""
    rules = rules_of(tx)
    if rules is None:
        return {}
    rows = tx.rows(
        "SELECT min(task) AS task, substr(task, 1, instr(task, '/') - 1) AS family, first_tries, first_wins, imported, "
        "faults, COUNT(*) AS tasks FROM shown GROUP BY family, first_tries, first_wins, imported, faults"
    )
    alike = [
        (
            row["family"] if "/" in row["task"] else "",
            DemoTask(
                task=row["task"],
                first=AttemptTally(tries=row["first_tries"], wins=row["first_wins"]),
                faults=row["faults"],
                imported=bool(row["imported"]),
            ),
            row["tasks"],
        )
        for row in rows
    ]
    return cold_start.count(alike, rules)


def log(tx: Transaction) -> None:
    """Say how many tasks fell into each stratum, and what resampling gave."""
    if rules_of(tx) is None:
        return
    sums = ", ".join(f"SUM({name}_tries), SUM({name}_wins)" for name in _COLUMNS.values())
    row = tx.row(f"SELECT {sums} FROM shown")  # noqa: S608 - names of columns
    assert row is not None
    total = [{"tries": row[2 * n] or 0, "wins": row[2 * n + 1] or 0} for n in range(len(_COLUMNS))]
    tx.emit(events.DEMO_STRATA, tasks=counts(tx), first=total[0], mixed=total[1], policy=total[2])


def label(tx: Transaction) -> None:
    """Write down, once, what the ledger's demonstrations are made with, and which observations its desktops show."""
    _add_observations(tx, queries.OBSERVED, (OBSERVATION_VERSION,))
    made = tx.settings
    for key, value in (("tokenizer", made.tokenizer), ("form", made.format), ("actions", made.action_space)):
        if not tx.meta(key):
            tx.set_meta(key, value)


def _add_observations(tx: Transaction, key: str, versions: Collection[int]) -> None:
    known = queries.parsed_versions(tx.meta(key))
    tx.set_meta(key, " ".join(map(str, sorted({*known, *versions}))))


def import_demos(tx: Transaction, path: Path, segments: SegmentStore, run_dir: Path) -> int:
    """Add demonstrations of `path` (see `demo_files.read`) until `demos.count` are stored; how many. Known ones are
    passed by.

    Demonstrations of a run that can't be read are passed by, too, with an event.

    Raises StoreError when it is missing, torn or of another form of file, LedgerError for another tokenizer, form of
    prompts or action space; nothing is added then.
    """
    wanted = tx.settings.demos.count - tx.counter("demos")
    if wanted <= 0:  # also after a restart, when the recording may be gone
        return 0
    lost: list[PayloadLost] = []
    header, demos = demo_files.read(path, lost.append)
    made_for = tx.settings
    refuse_foreign(path, header, tokenizer=made_for.tokenizer, form=made_for.format, actions=made_for.action_space)
    known = {row["digest"] for row in tx.rows("SELECT digest FROM imports")}
    if tx.counter("demo_attempts"):
        known |= {demo.digest for demo in demo_files.read(run_dir, lambda _: None)[1]}
    added = 0
    solved: set[str] = set()
    for demo in demos:  # to its end: one that was cut short adds nothing
        if problem := demo_files.unfit(demo):
            raise StoreError(f"{path}: {demo.task}: {problem}")
        if added < wanted and demo.digest not in known:
            _add(tx, demo, [_stored(step, segments) for step in demo.steps])
            known.add(demo.digest)
            solved.add(demo.task)
            added += 1
    if added:
        _add_observations(tx, queries.OBSERVED_IN_IMPORTS, header.observations)
    if lost:
        tx.emit(events.DEMOS_UNREADABLE, path=str(path), demos=len(lost), cause=str(lost[0]))
    if lost and not added:
        raise StoreError(f"{path}: none of its demonstrations can be read: {lost[0]}")
    # Of a recording that was not taken in whole, only the tasks of what was; those never solved have nothing to take.
    tried = [each for each in header.tasks if each.task in solved or not each.wins + each.mixed_wins]
    # Those known here stay as they are.
    tx.many(
        "INSERT OR IGNORE INTO shown(task, first_tries, first_wins, mixed_tries, mixed_wins, imported)"
        " VALUES(?, ?, ?, ?, ?, 1)",
        [(each.task, each.tries, each.wins, each.mixed_tries, each.mixed_wins) for each in tried],
    )
    segments.flush()
    tx.emit(events.DEMOS_TAKEN_IN, path=str(path), demos=added)
    return added


def refuse_foreign(path: Path, header: RecordingHeader, *, tokenizer: str, form: str, actions: str) -> None:
    """Raise LedgerError unless both sides agree; "" on either side agrees with anything."""
    for recorded, theirs, here, ours in (
        ("with tokenizer", header.tokenizer, "the model has", tokenizer),
        ("in form", header.form, "prompt.format is", form),
        ("with actions", header.actions, "prompt.action_space is", actions),
    ):
        if theirs and ours and theirs != ours:
            raise LedgerError(f"{path} was recorded {recorded} {theirs}, {here} {ours}: record again")


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
    tx.execute("INSERT INTO imports VALUES(?)", demo.digest)
    stratum = name_of(family_of(demo.task), demo.member or demo.route)
    for counter in ("demos", f"episodes:{Lane.DEMO}", f"demos:{stratum}"):
        tx.count(counter)
