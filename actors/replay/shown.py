"""The demonstrated tasks in the ledger: attempts handed out, ended and broken, and what the strata say of them.

Invariant: a task's tallies change in the transaction that hands out, commits or releases its attempt, so the strata
are the same after any kill; what is decided from them is decided in `cold`.
"""

from __future__ import annotations

from actors.replay import admission, cold, events, strata, wards
from actors.replay.book import Book, Row
from actors.replay.cold import Shown, Stage, Tally
from actors.replay.messages import Lane, Phase, Sampling
from actors.replay.reservoir import nth_of_epochs, stable_seed
from actors.replay.rounds import Work

_COLUMNS = {Stage.FIRST: "first", Stage.MIXED: "mixed", Stage.POLICY: "policy"}


def rules_of(book: Book) -> cold.Rules | None:
    """How tasks are tried; None where demonstrations are recorded without strata."""
    demos = book.settings.demos
    if not demos.attempts:
        return None
    return cold.Rules(
        attempts=demos.attempts,
        mixed=demos.mixed_attempts,
        resamples=demos.resamples,
        retries=book.rules.retries,
    )


def rounds_begun(book: Book) -> int:
    """Rounds of resampling on the way to the current stay: its stays in the phase of demonstrations but the first."""
    return sum(stay.phase is Phase.DEMO for stay in book.path()) - 1


def all_shown(book: Book) -> list[Shown]:
    """Every task tried so far, in the order in which they were begun."""
    return [_shown(row) for row in book.rows("SELECT * FROM shown ORDER BY n")]


def _shown(row: Row) -> Shown:
    tallies = {
        name: Tally(tries=row[f"{name}_tries"], wins=row[f"{name}_wins"], out=row[f"{name}_out"])
        for name in _COLUMNS.values()
    }
    return Shown(task=row["task"], faults=row["faults"], imported=bool(row["imported"]), **tallies)


def next_attempt(book: Book, rules: cold.Rules) -> Work | None:
    """The next attempt at a demonstration, noted as handed out. None when none is called for now."""
    rounds = rounds_begun(book)
    if rounds and not _policy_is_served(book):
        return None
    for shown in all_shown(book):
        stage = cold.next_stage(shown, rules, rounds)
        if stage is not None and wards.playable(book, shown.task):
            return _attempt(book, shown, stage)
    if rounds or (task := _openable(book, rules)) is None:
        return None
    book.execute("INSERT INTO shown(task) VALUES(?)", task)
    return _attempt(book, Shown(task=task), Stage.FIRST)


def _policy_is_served(book: Book) -> bool:
    stay = book.stay()
    return admission.serving_is_fresh(book.served, stay.start, book.trained, book.rules.max_staleness, book.lineages())


def _openable(book: Book, rules: cold.Rules) -> str | None:
    """A task to begin with: of the family that holds the fewest demonstrations. None when no more is to be begun."""
    demos = book.settings.demos
    known = all_shown(book)
    mine = [shown for shown in known if not shown.imported]
    pending = sum(
        rules.attempts - shown.first.tries for shown in mine if not cold.set_aside(shown, rules, 0)
    )  # fmt: skip
    if not cold.may_open(
        book.counter("demos"), pending, len(mine),
        count=demos.count, most=int(demos.count * demos.attempts_per_demo), attempts=rules.attempts,
    ):  # fmt: skip
        return None
    begun = {shown.task for shown in known}
    families = strata.strata(book.settings.demo_tasks, {})
    opened = {one.name: sum(task in begun for task in one.tasks) for one in families}
    for one in sorted(families, key=lambda one: opened[one.name]):
        seed = stable_seed(book.settings.seed, "demo tasks", one.name)
        for number in range(len(one.tasks)):
            task = nth_of_epochs(one.tasks, number, seed)
            if task not in begun and wards.playable(book, task):
                return task
    return None


def _attempt(book: Book, shown: Shown, stage: Stage) -> Work:
    family = strata.family_of(shown.task)
    seed = book.settings.seed
    if stage is Stage.FIRST:
        names = book.settings.demo_members.get(family) or [""]
        member = cold.member_of(shown, names, stable_seed(seed, "members", shown.task))
    else:
        member = cold.MIXED if stage is Stage.MIXED else cold.POLICY
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
        sampling=Sampling(temperature=book.rules.temperature, max_new_tokens=book.rules.max_new_tokens),
        member=member,
    )


def ended(book: Book, task: str, member: str, *, success: bool) -> None:
    """An attempt came to an outcome."""
    rules = rules_of(book)
    if rules is None or (before := _one(book, task)) is None:
        return
    name = _COLUMNS[cold.stage_of(member)]
    book.execute(
        f"UPDATE shown SET {name}_out = max(0, {name}_out - 1), {name}_tries = {name}_tries + 1, "  # noqa: S608
        f"{name}_wins = {name}_wins + ? WHERE task = ?",
        success,
        task,
    )
    after = _one(book, task)
    assert after is not None
    where = cold.stratum(after, rules)
    if where is not None and cold.stratum(before, rules) is None:
        book.emit(
            events.DEMO_TASK_SETTLED, task=task, stratum=where, tries=after.first.tries, wins=after.first.wins
        )  # fmt: skip


def broken(book: Book, task: str, member: str, *, counts: bool) -> None:
    """Infrastructure broke an attempt."""
    name = _COLUMNS[cold.stage_of(member)]
    book.execute(
        f"UPDATE shown SET {name}_out = max(0, {name}_out - 1), faults = faults + ? WHERE task = ?",  # noqa: S608
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
    found = 0
    for shown in all_shown(book):
        missing = cold.left(shown, rules, rounds)
        found += missing if missing == 0 or wards.playable(book, shown.task) else shown.out
    return found + (not rounds and _openable(book, rules) is not None)


def counts(book: Book) -> dict[str, int]:
    """`family/stratum` -> tasks; empty without strata."""
    rules = rules_of(book)
    if rules is None:
        return {}
    return cold.count(((strata.family_of(shown.task), shown) for shown in all_shown(book)), rules)


def log(book: Book) -> None:
    """Say how many tasks fell into each stratum, by which rule, and what resampling gave."""
    rules = rules_of(book)
    if rules is None:
        return
    known = all_shown(book)

    def total(tallies: list[Tally]) -> dict[str, int]:
        return {"tries": sum(one.tries for one in tallies), "wins": sum(one.wins for one in tallies)}

    book.emit(
        events.DEMO_STRATA, rule=rules.text(), tasks=counts(book), first=total([shown.first for shown in known]),
        mixed=total([shown.mixed for shown in known]), policy=total([shown.policy for shown in known]),
    )  # fmt: skip
