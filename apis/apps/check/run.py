"""Runs the cases of a table on a desk.

Invariant: every case gets one verdict, whatever the others did. A function counts as ok only when its right call had
its effect and its wrong call was refused by the argument's name. An application that ended is that case's problem
alone: the others go on with a fresh one. A case prepares what it needs itself, so any of them can run alone.
"""

from __future__ import annotations

import asyncio
import time
import zipfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, NotSo, Table

CASE_S = 300.0  # a hung application ends a case, with its calls' own deadlines
REFUSED = "refused: "


class CaseOutcome:
    """What came of a case; `problem` is "" where nothing is wrong, `ms` the times of the right calls."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.problem = ""
        self.ms: list[float] = []

    def hold(self, problem: str) -> None:
        """Keep the first problem."""
        self.problem = self.problem or problem


async def run(
    table: Table, desk: Desk, repeats: int, heard: Callable[[str], None], only: Collection[str] | None = None
) -> list[CaseOutcome]:
    """Run all cases, or those of the functions `only`, then time each `repeats` times more.

    `heard` is told what is being done.
    """
    await _ready(table, desk)
    outcomes = [CaseOutcome(case) for case in table.cases if only is None or case.function in only]
    left = list(outcomes)
    while left:
        outcome = left.pop(0)
        heard(outcome.case.function)
        await _guarded(outcome, _once(outcome, desk), CASE_S)
        if await _ended(outcome, table, desk):  # and what the others had changed is gone with it
            left = [each for each in outcomes if not each.problem]
            for each in left:
                each.ms.clear()
    if table.read is not None and any(each.case.saved is not None for each in outcomes):
        heard("reading what was saved")
        await _read(table, desk, outcomes)
    for outcome in outcomes:
        if not outcome.problem:
            heard(f"{outcome.case.function}, timed")
            await _guarded(outcome, _timed(outcome, desk, repeats), None)
            await _ended(outcome, table, desk)
    return outcomes


async def _ready(table: Table, desk: Desk) -> None:
    if table.ready is not None:
        await table.ready(desk)


async def _guarded(outcome: CaseOutcome, work: Awaitable[None], most_s: float | None) -> None:
    """Do a case's work; what it finds, or that it takes longer, is the case's problem."""
    try:
        async with asyncio.timeout(most_s):
            await work
    except NotSo as found:
        outcome.hold(str(found))
    except TimeoutError:
        outcome.hold(f"not done within {most_s:g} s")
    except (
        LookupError,
        ValueError,
        OSError,
        zipfile.BadZipFile,
    ) as error:  # what was saved is not what a case can read
        outcome.hold(f"{type(error).__name__}: {error}")


async def _ended(outcome: CaseOutcome, table: Table, desk: Desk) -> bool:
    """Whether a case that failed has ended the application, which is then there again."""
    if not outcome.problem or not await desk.ended():
        return False
    outcome.problem = f"the application ended: {outcome.problem}"
    await desk.again()
    await _ready(table, desk)
    return True


async def _once(outcome: CaseOutcome, desk: Desk) -> None:
    case = outcome.case
    if case.before is not None:
        await case.before(desk)
    answer = await _call(outcome, desk, case.right)
    if answer.startswith(REFUSED) or case.says not in answer:
        outcome.hold(f"says {answer[:200]!r}, wanted {case.says!r}")
    elif case.effect is not None:
        await case.effect(desk, answer)
    refusal = await desk.tool(case.function, **case.wrong)
    if not refusal.startswith(REFUSED) or case.refusal not in refusal:
        outcome.hold(f"to {dict(case.wrong)!r} says {refusal[:200]!r}, wanted a refusal with {case.refusal!r}")


async def _read(table: Table, desk: Desk, outcomes: list[CaseOutcome]) -> None:
    assert table.read is not None
    try:
        async with asyncio.timeout(CASE_S):
            seen = await table.read(desk)
    except (NotSo, TimeoutError) as found:
        for outcome in outcomes:
            outcome.hold(str(found) or f"nothing could be read back within {CASE_S:g} s")
        return
    for outcome in outcomes:
        if outcome.case.saved is not None:
            try:
                outcome.case.saved(seen)
            except NotSo as found:
                outcome.hold(str(found))


async def _timed(outcome: CaseOutcome, desk: Desk, repeats: int) -> None:
    case = outcome.case
    if not case.repeat or not repeats:
        return
    if case.before is not None:
        await case.before(desk)
    for number in range(repeats):
        arguments = case.again(number) if case.again is not None else case.right
        answer = await _call(outcome, desk, arguments)
        if answer.startswith(REFUSED):
            raise NotSo(f"repeated, it says {answer[:200]!r}")


async def _call(outcome: CaseOutcome, desk: Desk, arguments: Mapping[str, Any]) -> str:
    if outcome.case.each is not None:
        await outcome.case.each(desk)
    began = time.perf_counter()
    answer = await desk.tool(outcome.case.function, **arguments)
    outcome.ms.append(1e3 * (time.perf_counter() - began))
    return answer
