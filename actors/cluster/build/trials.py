"""Tries a generated function on real desktops: its own cases, a body that does nothing, mutants, and its time.

Every case begins on a desktop of its own, so that no case prepares another's way. The source runs in the desktop alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from contextlib import suppress
from textwrap import indent
from typing import Any

from msgspec.structs import replace

from actors.cluster.checks.desk import CALL_S, RealDesk
from actors.desktop.link import LinkDown
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault, GuestRefused
from apis.apps.check.case import Case, NotSo, Table
from apis.apps.check.run import CaseOutcome, run
from apis.apps.check.steps import REFUSED
from apis.build.answers import PUT, READ, AnswerRefusedError, Cases, Interface, as_cases, checked
from apis.build.judge import SLOW_MS, Trial
from apis.build.profile import Profile

REPEATS = 20
TIMINGS = 3  # of a function that is too slow
BOOTS = 3  # of a desktop whose application does not open
WAIT_S = 1.5  # for a file that is being written
NOTHING = "does nothing"


class BuildDesk(RealDesk):
    """A desk whose functions are sources that are being tried; `read` and `put` are the profile's own snippets."""

    def __init__(self, profile: Profile, provider: SandboxProvider) -> None:
        super().__init__(table_of(profile, []), provider)
        self._profile = profile
        self.interface: Interface | None = None
        self.source = ""

    async def again(self) -> None:
        """As of a real desk, where a busy machine gets a second and a third try. Raises as that does."""
        for _ in range(BOOTS - 1):
            with suppress(NotSo, DesktopFault, LinkDown):
                await super().again()
                return
        await super().again()

    async def tool(self, name: str, /, **arguments: Any) -> str:
        """What the source or a snippet says, or "refused: " and why. Raises LinkDown."""
        try:
            if name in (READ, PUT):
                return await self._snippet(name, **arguments)
            assert self.interface is not None
            given = checked(self.interface.function(self._profile.owner), arguments)
            return await self._run("built", self.source, name, given)
        except AnswerRefusedError as refused:
            return f"{REFUSED}{refused}"
        except GuestRefused as refused:
            return f"{REFUSED}{refused.text}"

    async def looked(self, source: str, interface: Interface) -> Any:
        """What a look at a source says, with its mutants. Raises GuestRefused, LinkDown."""
        given = {"source": source, "name": interface.name, "params": list(interface.params)}
        return await self._link.call("look_at_source", timeout_s=CALL_S, imports=self._profile.imports, **given)

    async def read(self, body: str) -> str:
        """What an expression of `app` gives, or lines of which one returns it. Raises GuestRefused, LinkDown."""
        body = body.strip() if "\n" in body.strip() else f"return {body.strip()}"
        return await self._run("profile", f"def read():\n{indent(body, ' ')}\n", "read", {})

    async def _snippet(self, kind: str, what: str, value: Any = None) -> str:
        # In a process of its own, where a function that is tried can change nothing of what is read.
        if kind == READ:
            return await self.read(self._profile.reads[what])
        body = self._profile.puts[what] if what else self._profile.saves or "pass"
        return await self._run("profile", f"def put(value):\n{indent(body, ' ')}\n", "put", {"value": value})

    async def _run(self, worker: str, source: str, name: str, arguments: dict[str, Any]) -> str:
        given = {"worker": worker, "source": source, "name": name, "arguments": arguments}
        given |= {"helpers": self._profile.helpers, "imports": self._profile.imports}
        return str(await self._link.call("try_source", timeout_s=CALL_S, **given))


def table_of(profile: Profile, cases: list[Case]) -> Table:
    """The profile's files and window as a table of cases."""
    opened: dict[str, Any] = {"files": profile.files, "opens": profile.opens, "title": profile.window}
    return Table(app=profile.app, owner=profile.owner, cases=cases, wait_s=WAIT_S, **opened)


class Trials:
    """Tries functions of one application, one desktop at a time."""

    def __init__(self, profile: Profile, provider: SandboxProvider) -> None:
        self._profile = profile
        self._desk = BuildDesk(profile, provider)

    async def close(self) -> None:
        """Give the desktop back."""
        await self._desk.close()

    async def trial(self, interface: Interface, source: str, made: Cases) -> Trial:
        """One round of a function. Raises DesktopFault, LinkDown and NotSo where the desktop is at fault."""
        await self._desk.again()
        try:
            seen = await self._desk.looked(source, interface)
        except (GuestRefused, LinkDown) as error:
            return Trial([f"it can't be looked at: {error}"])
        if seen.wrong:
            return Trial(list(seen.wrong))
        all_cases = as_cases(interface, made, self._profile)
        problems = [await self._problem(interface, source, case) for case in all_cases]
        if any(problems):
            return Trial(problems=problems)
        mutants = dict(seen.mutants)
        empty = mutants.pop(NOTHING)
        held = [n for n, case in enumerate(all_cases, 1) if not await self._problem(interface, empty, _unsaid(case))]
        if held:
            return Trial(problems=problems, holds_for_nothing=held)
        missed = [text for text, mutant in mutants.items() if not await self._noticed(interface, mutant, all_cases)]
        timed = replace(all_cases[0], before=[], each=all_cases[0].before or [])
        tries: list[Trial] = []
        while len(tries) < TIMINGS and all(each.p95_ms > SLOW_MS for each in tries):  # a busy machine has calm moments
            tries.append(await self._timed(interface, source, timed))
        best = min(tries, key=lambda each: each.p95_ms)
        return replace(best, problems=best.problems or problems, mutants=len(seen.mutants), missed=missed)

    async def _timed(self, interface: Interface, source: str, timed: Case) -> Trial:
        """The times of repeated calls on a fresh desktop, and the windows that they left."""
        await self._desk.again()
        before = len(await self._desk.call("windows"))
        try:
            outcome = await self._outcome(interface, source, timed, REPEATS)
            await self._desk.call("settle", timeout_ms=2000, quiet_ms=100)
            windows = max(0, len(await self._desk.call("windows")) - before)
        except LinkDown as error:
            return Trial(problems=[f"called again and again, the desktop broke: {error}"])
        ms = sorted(outcome.ms[1:] or outcome.ms)  # without the first, for which a process starts; fewer if refused
        if not ms:
            return Trial(problems=[outcome.problem])
        p95_ms = round(ms[math.ceil(0.95 * len(ms)) - 1], 2)
        return Trial(p50_ms=round(statistics.median(ms), 2), p95_ms=p95_ms, windows=windows)

    async def checked(self, interface: Interface, source: str, made: Cases) -> str:
        """The first problem of an accepted function's cases, "" where there is none."""
        found = [await self._problem(interface, source, case) for case in as_cases(interface, made, self._profile)]
        return next(filter(None, found), "")

    async def _noticed(self, interface: Interface, source: str, all_cases: Sequence[Case]) -> bool:
        for case in all_cases:
            if await self._problem(interface, source, case):
                return True
        return False

    async def _problem(self, interface: Interface, source: str, case: Case) -> str:
        """What is wrong with one case on a fresh desktop, "" where it passes."""
        await self._desk.again()
        try:
            return (await self._outcome(interface, source, case)).problem
        except LinkDown as error:  # after the desktop was ready: the function has ended more than itself
            return f"the desktop broke: {error}"

    async def _outcome(self, interface: Interface, source: str, case: Case, repeats: int = 0) -> CaseOutcome:
        self._desk.interface, self._desk.source = interface, source
        (outcome,) = await run(table_of(self._profile, [case]), self._desk, repeats, lambda _: None)
        return outcome


def _unsaid(case: Case) -> Case:
    """The case by its effects alone, where it has any: they have to fail for a body that does nothing."""
    alone = replace(case, wrong={"nothing": 1}, refusal="no argument nothing")
    return replace(alone, says="") if case.effect else alone
