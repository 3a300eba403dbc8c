"""Tries a generated function on real desktops: its own cases, a body that does nothing, mutants, and its time.

Every case begins on a desktop of its own, so that no case prepares another's way. A case counts only where it fails for
a body that does nothing, and a function only where its cases notice most of its mutants.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from actors.cluster.checks.desk import RealDesk
from actors.cluster.checks.functions import percentile
from apis import catalogue
from apis.apps.check.case import Case, NotSo, table_of
from apis.apps.check.run import CaseOutcome, run
from apis.built import Api, BuiltFunction

REPEATS = 20
TIMINGS = 3  # of a function that is too slow: a busy machine has calm moments
SLOW_MS = 500.0  # at the 95th percentile
NOTICED_LEAST = 0.5  # of the mutants, the empty body among them; some change nothing that shows
NOTHING = "does nothing"


class Trial(msgspec.Struct, frozen=True):
    """One round of a function: what is to be mended first, "" where it is accepted, and what was measured by then."""

    problem: str = ""
    about: str = ""  # whether the code, the cases, or either of them as the model finds
    mutants: int = 0
    missed: list[str] = []  # mutants that no case failed on
    p50_ms: float = 0.0
    p95_ms: float = 0.0


class Trials:
    """Tries functions of one application, one desktop at a time."""

    def __init__(self, api: Api, desk: RealDesk) -> None:
        self._api, self._desk = api, desk

    async def trial(self, made: BuiltFunction) -> Trial:
        """One round of a function. Raises DesktopFault, LinkDown and NotSo where the desktop is at fault."""
        with catalogue.shown(self._api.app, [made.function(self._api.owner)]):
            return await self._tried(made, table_of(self._api, [made]).cases)

    async def _tried(self, made: BuiltFunction, cases: list[Case]) -> Trial:
        await self._desk.again()
        given = {"source": made.code, "name": made.name, "params": list(made.params), "imports": self._api.imports}
        try:
            seen = await self._desk.call("look_at_source", **given)
        except NotSo as error:
            return Trial(f"it can't be looked at: {error}", "code")
        if seen.wrong:
            return Trial("The code is not taken: " + "; ".join(seen.wrong), "code")
        outcomes = enumerate(await self._outcomes(made, cases), 1)
        if failed := [f"case {number}: {each.problem}" for number, each in outcomes if each.problem]:
            return Trial("\n".join(failed[:3]), "either")
        mutants = dict(seen.mutants)
        empty = replace(made, code=mutants.pop(NOTHING))
        outcomes = enumerate(await self._outcomes(empty, [_unsaid(case) for case in cases]), 1)
        if held := [str(number) for number, each in outcomes if not each.problem]:
            return Trial(f"case {', '.join(held)} passes although the function does nothing: it can't fail", "cases")
        missed = [text for text, code in mutants.items() if not await self._noticed(replace(made, code=code), cases)]
        count = len(seen.mutants)
        if count - len(missed) < NOTICED_LEAST * count:
            return Trial("no case notices that the function " + "; ".join(missed), "cases", count, missed)
        timed = await self._timed(made, cases[0])
        return replace(timed, mutants=count, missed=missed)

    async def _noticed(self, mutant: BuiltFunction, cases: list[Case]) -> bool:
        for case in cases:
            if (await self._outcomes(mutant, [case]))[0].problem:
                return True
        return False

    async def _timed(self, made: BuiltFunction, case: Case) -> Trial:
        """Its time in repeated calls, and whether they leave a window open."""
        timed = Trial()
        for _ in range(TIMINGS):
            (outcome,) = await self._outcomes(made, [case], REPEATS)
            try:
                await self._desk.call("settle", timeout_ms=2000, quiet_ms=100)
                left = len(await self._desk.call("windows")) - self._desk.windows
            except NotSo as error:
                return Trial(f"called again and again, the desktop broke: {error}", "code")
            ms = outcome.ms[1:] or outcome.ms  # without the first, for which a process starts; fewer if refused
            if not ms:
                return Trial(outcome.problem, "code")
            slow = "" if (p95_ms := percentile(ms, 0.95)) <= SLOW_MS else f"a call takes {p95_ms:.0f} ms, "
            problem = f"{slow}{SLOW_MS:.0f} is the most" if slow else "a call leaves a window open" if left > 0 else ""
            timed = Trial(problem, "code" if problem else "", p50_ms=percentile(ms, 0.5), p95_ms=p95_ms)
            if not slow:
                break
        return timed

    async def _outcomes(self, made: BuiltFunction, cases: Sequence[Case], repeats: int = 0) -> list[CaseOutcome]:
        self._desk.table = replace(table_of(self._api, [made]), cases=list(cases))
        return await run(self._desk.table, self._desk, repeats, lambda _: None)


def _unsaid(case: Case) -> Case:
    """The case by its effects alone, where it has any: they have to fail for a body that does nothing."""
    alone = replace(case, wrong={"nothing": 1}, refusal="no argument nothing")
    return replace(alone, says="") if case.effect else alone
