"""The demonstrated tasks in the ledger: attempts handed out, ended and broken, and what the strata say of them.

Invariant: a task's tallies change in the transaction that hands out, commits or releases its attempt, so the strata
are the same after any kill; what is decided from them is decided in `cold`.
"""

from __future__ import annotations

from actors.replay import events
from actors.replay.database.transaction import Book, Row
from actors.replay.ledger import task_quarantine
from actors.replay.ledger.eval_rounds import Work
from actors.replay.messages import Lane, Phase
from actors.replay.rules import admission, cold_start, strata
from actors.replay.rules.cold_start import Shown, Stage, Tally
from actors.replay.rules.reservoir import nth_of_epochs
from runtime.seeds import stable_seed

_COLUMNS = {Stage.FIRST: "first", Stage.MIXED: "mixed", Stage.POLICY: "policy"}


def rules_of(book: Book) -> cold_start.Rules | None:
    """How tasks are tried; None where demonstrations are recorded without strata."""
    demos = book.settings.demos
    if not demos.attempts_per_task:
        return None
    return cold_start.Rules(
        attempts=demos.attempts_per_task,
        mixed=demos.mixed_attempts,
        resamples=demos.resample_attempts,
        retries=book.rules.retries,
    )


def rounds_begun(book: Book) -> int:
    """Rounds of resampling on the way to the current stay: its stays in the phase of demonstrations but the first."""
    return sum(stay.phase is Phase.DEMO for stay in book.path()) - 1


def all_shown(book: Book) -> list[Shown]:
    """Every task tried so far, in the order in which they were begun."""
    return [_shown(row) for row in book.rows("SELECT * FROM shown ORDER BY n")]


def _live(book: Book, rules: cold_start.Rules, rounds: int) -> list[Shown]:
    """Those that may still be tried or are being tried, in that order: asked at every turn, so the rest isn't read."""
    if rounds:
        rows = book.rows(
            "SELECT * FROM shown WHERE policy_out > 0 OR (first_wins > 0 AND first_wins < first_tries "
            "AND policy_tries < ?) ORDER BY n",
            rules.resamples * rounds,
        )
    else:
        rows = book.rows(
            "SELECT * FROM shown WHERE first_out + mixed_out > 0 OR (imported = 0 AND (first_tries < ? "
            "OR (first_wins = 0 AND mixed_tries < ?))) ORDER BY n",
            rules.attempts,
            rules.mixed,
        )
    return [_shown(row) for row in rows]


def _shown(row: Row) -> Shown:
    tallies = {
        name: Tally(tries=row[f"{name}_tries"], wins=row[f"{name}_wins"], out=row[f"{name}_out"])
        for name in _COLUMNS.values()
    }
    return Shown(task=row["task"], faults=row["faults"], imported=bool(row["imported"]), **tallies)


def next_attempt(book: Book, rules: cold_start.Rules) -> Work | None:
    """The next attempt at a demonstration, noted as handed out. None when none is called for now."""
    rounds = rounds_begun(book)
    if rounds and not _policy_is_served(book):
        return None
    live = _live(book, rules, rounds)
    for shown in live:
        stage = cold_start.next_stage(shown, rules, rounds)
        if stage is not None and task_quarantine.playable(book, shown.task):
            return _attempt(book, shown, stage)
    if rounds or (found := _openable(book, rules, live)) is None:
        return None
    task, family, place = found
    book.execute("INSERT INTO shown(task) VALUES(?)", task)
    book.count(f"demos_begun:{family}")
    book.count(f"demos_place:{family}", place - book.counter(f"demos_place:{family}"))
    return _attempt(book, Shown(task=task), Stage.FIRST)


def _policy_is_served(book: Book) -> bool:
    stay = book.stay()
    return admission.serving_is_fresh(book.served, stay.start, book.trained, book.rules.max_staleness, book.lineages())


def _openable(book: Book, rules: cold_start.Rules, live: list[Shown]) -> tuple[str, str, int] | None:
    """A task to begin with, of the family that has begun the fewest: it, the family, and the place after it in the
    family's order. None when no more is to be begun.
    """
    demos = book.settings.demos
    # What rests or was set aside may never give any: others take its place.
    able = (shown for shown in live if not shown.imported and (shown.out or task_quarantine.playable(book, shown.task)))
    mine = [shown for shown in able if not cold_start.set_aside(shown, rules, 0)]
    pending = sum(rules.attempts - shown.first.tries for shown in mine)
    opened = book.number("SELECT COUNT(*) FROM shown WHERE imported = 0")
    most = demos.attempts
    if not cold_start.may_open(
        book.counter("demos"), pending, opened, count=demos.count, most=most, attempts=rules.attempts
    ):  # fmt: skip
        return None
    begun = {one.name: book.counter(f"demos_begun:{one.name}") for one in book.demo_families}
    for one in sorted(book.demo_families, key=lambda one: begun[one.name]):
        seed = stable_seed(book.settings.seed, "demo tasks", one.name)
        for number in range(book.counter(f"demos_place:{one.name}"), len(one.tasks)):
            task = nth_of_epochs(one.tasks, number, seed)
            if _one(book, task) is None and task_quarantine.playable(book, task):
                return task, one.name, number + 1
    return None


def _attempt(book: Book, shown: Shown, stage: Stage) -> Work:
    family = strata.family_of(shown.task)
    seed = book.settings.seed
    if stage is Stage.FIRST:
        names = book.settings.demo_members.get(family) or [""]
        member = cold_start.member_of(shown, names, stable_seed(seed, "members", shown.task))
    else:
        member = cold_start.MIXED if stage is Stage.MIXED else cold_start.POLICY
    tally = shown.tally(stage)
    number = tally.tries + tally.out + shown.faults
    book.execute(f"UPDATE shown SET {_COLUMNS[stage]}_out = {_COLUMNS[stage]}_out + 1 WHERE task = ?", shown.task)  # noqa: S608
    slot = book.counter("demos_tried")
    book.count("demos_tried")
    return Work(
        lane=Lane.DEMO,
        task=shown.task,
        slot=slot,
        seed=stable_seed(seed, "demo", shown.task, stage, number),
        sampling=book.train_sampling(),
        member=member,
    )


def ended(book: Book, task: str, member: str, *, success: bool) -> None:
    """An attempt came to an outcome."""
    rules = rules_of(book)
    if rules is None or (before := _one(book, task)) is None:
        return
    name = _COLUMNS[cold_start.stage_of(member)]
    book.execute(
        f"UPDATE shown SET {name}_out = {name}_out - 1, {name}_tries = {name}_tries + 1, "  # noqa: S608
        f"{name}_wins = {name}_wins + ? WHERE task = ?",
        success,
        task,
    )
    after = _one(book, task)
    assert after is not None
    where = cold_start.stratum(after, rules)
    if where is not None and cold_start.stratum(before, rules) is None:
        book.emit(
            events.DEMO_TASK_SETTLED, task=task, stratum=where, tries=after.first.tries, wins=after.first.wins
        )  # fmt: skip


def broken(book: Book, task: str, member: str, *, counts: bool) -> None:
    """Infrastructure broke an attempt."""
    name = _COLUMNS[cold_start.stage_of(member)]
    book.execute(
        f"UPDATE shown SET {name}_out = {name}_out - 1, faults = faults + ? WHERE task = ?",  # noqa: S608
        counts,
        task,
    )


def _one(book: Book, task: str) -> Shown | None:
    row = book.row("SELECT * FROM shown WHERE task = ?", task)
    return None if row is None else _shown(row)


def take_in(book: Book, tried: list[Shown]) -> None:
    """Note what a recording says of its tasks; those known here stay as they are."""
    for shown in tried:
        book.execute(
            "INSERT OR IGNORE INTO shown(task, first_tries, first_wins, mixed_tries, mixed_wins, imported)"
            " VALUES(?, ?, ?, ?, ?, 1)",
            shown.task, shown.first.tries, shown.first.wins, shown.mixed.tries, shown.mixed.wins,
        )  # fmt: skip


def attempts_left(book: Book) -> int | None:
    """Attempts that the current stay still calls for, 0 when it is over; None without strata.

    A task at rest is not waited for, unless an attempt at it is in flight.
    """
    rules = rules_of(book)
    if rules is None or book.stay().phase is not Phase.DEMO:
        return None
    rounds = rounds_begun(book)
    live = _live(book, rules, rounds)
    found = 0
    for shown in live:
        missing = cold_start.left(shown, rules, rounds)
        found += missing if missing == 0 or task_quarantine.playable(book, shown.task) else shown.out
    return found + (not rounds and _openable(book, rules, live) is not None)


def counts(book: Book) -> dict[str, int]:
    """`family/stratum` -> tasks; empty without strata."""
    rules = rules_of(book)
    if rules is None:
        return {}
    rows = book.rows(
        "SELECT min(task) AS task, substr(task, 1, instr(task, '/') - 1) AS family, first_tries, first_wins, imported, "
        "faults, COUNT(*) AS tasks FROM shown GROUP BY family, first_tries, first_wins, imported, faults"
    )
    alike = [
        (
            row["family"] if "/" in row["task"] else "",
            Shown(
                task=row["task"],
                first=Tally(tries=row["first_tries"], wins=row["first_wins"]),
                faults=row["faults"],
                imported=bool(row["imported"]),
            ),
            row["tasks"],
        )
        for row in rows
    ]
    return cold_start.count(alike, rules)


def log(book: Book) -> None:
    """Say how many tasks fell into each stratum, by which rule, and what resampling gave."""
    rules = rules_of(book)
    if rules is None:
        return
    sums = ", ".join(f"SUM({name}_tries), SUM({name}_wins)" for name in _COLUMNS.values())
    row = book.row(f"SELECT {sums} FROM shown")  # noqa: S608 - names of columns
    assert row is not None
    total = [{"tries": row[2 * n] or 0, "wins": row[2 * n + 1] or 0} for n in range(len(_COLUMNS))]
    book.emit(
        events.DEMO_STRATA, rule=rules.text(), tasks=counts(book), first=total[0], mixed=total[1], policy=total[2]
    )  # fmt: skip
