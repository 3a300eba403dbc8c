"""Runs the cases of a table on a desk.

A function is ok when its right call had its effect and its wrong call was refused by the argument's name. An
application that ended is that case's problem alone: the others go on with a fresh one.
"""

from __future__ import annotations

import asyncio
import time
import zipfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from lxml import etree

from apis.apps.check.case import Case, Desk, NotSo, Table
from apis.apps.check.steps import REFUSED, Steps

CASE_S = 300.0  # a hung application ends a case, with its calls' own deadlines


class CaseOutcome:
    """What came of a case; `problem` is "" where nothing is wrong, `ms` the times of the right calls."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.problem = ""
        self.ms: list[float] = []

    def hold(self, problem: str) -> None:
        self.problem = self.problem or problem


async def run(
    table: Table, desk: Desk, repeats: int, report: Callable[[str], None], only: Collection[str] | None = None
) -> list[CaseOutcome]:
    """Run all cases, or those of the functions `only`, then time each `repeats` times more.

    `report` is called with what is being done.
    """
    work = _Run(table, desk)
    await work.steps.run(table.ready)
    outcomes = [CaseOutcome(case) for case in table.cases if only is None or case.function in only]
    left = list(outcomes)
    while left:
        outcome = left.pop(0)
        report(outcome.case.function)
        if table.fresh:
            await desk.again()
        await work.guarded(outcome, work.once(outcome), CASE_S)
        if not table.fresh and await work.restarted(outcome):  # and what the others had changed is gone with it
            left = [each for each in outcomes if not each.problem]
            for each in left:
                each.ms.clear()
    if any(each.case.saved for each in outcomes):
        report("reading what was saved")
        await work.read_saved(outcomes)
    for outcome in outcomes:
        if not outcome.problem:
            report(f"{outcome.case.function}, timed")
            await work.guarded(outcome, work.timed(outcome, repeats), None)
            await work.restarted(outcome)
    return outcomes


class _Run:
    """One run of a table."""

    def __init__(self, table: Table, desk: Desk) -> None:
        self._table, self._desk = table, desk
        self.steps = Steps(table, desk)

    async def guarded(self, outcome: CaseOutcome, work: Awaitable[None], most_s: float | None) -> None:
        """Do a case's work; what it finds, or that it takes longer, is the case's problem."""
        try:
            async with asyncio.timeout(most_s):
                await work
        except NotSo as error:
            outcome.hold(str(error))
        except TimeoutError:
            outcome.hold(f"not done within {most_s:g} s")
        # What was saved is not what a case can read.
        except (LookupError, ValueError, OSError, zipfile.BadZipFile, etree.XMLSyntaxError) as error:
            outcome.hold(f"{type(error).__name__}: {error}")

    async def restarted(self, outcome: CaseOutcome) -> bool:
        """Whether a case that failed has ended the application, which is then there again."""
        if not outcome.problem or not await self._desk.ended():
            return False
        outcome.problem = f"the application ended: {outcome.problem}"
        await self._desk.again()
        await self.steps.run(self._table.ready)
        return True

    async def once(self, outcome: CaseOutcome) -> None:
        """The right call with its effect, and the wrong call."""
        case = outcome.case
        await self.steps.before(case)
        answer = await self._call(outcome, case.right)
        if answer.startswith(REFUSED) or case.says not in answer:
            outcome.hold(f"says {answer[:200]!r}, wanted {case.says!r}")
        else:
            await self.steps.run(case.effect, answer)
        refusal = await self._desk.tool(case.function, **case.wrong)
        if not refusal.startswith(REFUSED) or case.refusal not in refusal:
            outcome.hold(f"to {case.wrong!r} says {refusal[:200]!r}, wanted a refusal with {case.refusal!r}")

    async def read_saved(self, outcomes: list[CaseOutcome]) -> None:
        """Save the document, and look at what each case did to it."""
        try:
            async with asyncio.timeout(CASE_S):
                await self.steps.run(self._table.ends)
        except (NotSo, TimeoutError) as error:
            for outcome in outcomes:
                outcome.hold(str(error) or f"nothing could be read back within {CASE_S:g} s")
            return
        for outcome in outcomes:
            await self.guarded(outcome, self.steps.run(outcome.case.saved), CASE_S)

    async def timed(self, outcome: CaseOutcome, repeats: int) -> None:
        """The repeated right calls. Raises NotSo."""
        if repeats:
            await self.steps.before(outcome.case)
        for number in range(repeats):
            answer = await self._call(outcome, outcome.case.repeated(number))
            if answer.startswith(REFUSED):
                raise NotSo(f"repeated, it says {answer[:200]!r}")

    async def _call(self, outcome: CaseOutcome, arguments: Mapping[str, Any]) -> str:
        await self.steps.run(outcome.case.each)
        began = time.perf_counter()
        answer = await self._desk.tool(outcome.case.function, **arguments)
        outcome.ms.append(1e3 * (time.perf_counter() - began))
        return answer
