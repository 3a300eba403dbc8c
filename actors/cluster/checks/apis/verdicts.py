"""Verdicts on functions. Pure.

Invariant: every declared function of an application that was asked for has exactly one verdict. It is "ok" only where
the function's case ran and found nothing wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actors.cluster.checks.apis.targets import Target, percentile
from apis.apps.check.run import CaseOutcome
from apis.catalogue import TOOLS

LIGHT_MS = 150.0  # at the 95th percentile


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One function."""

    app: str
    function: str
    verdict: str  # ok, failed, unavailable
    p50_ms: float | None = None
    p95_ms: float | None = None


class FunctionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and what people want to know beside it."""

    verdict: Verdict
    calls: int = 0
    light: bool = True  # neither starts nor exports anything
    problem: str = ""

    @property
    def slow(self) -> bool:
        """Whether its time misses the target."""
        p95_ms = self.verdict.p95_ms
        return self.light and p95_ms is not None and p95_ms > LIGHT_MS


def functions(app: str) -> list[str]:
    """The declared functions."""
    return [function.name for function in TOOLS.get(app, ())]


def without(app: str, names: Iterable[str], verdict: str, why: str) -> list[FunctionVerdict]:
    """One verdict for all functions of an application that was not, or could not be, opened."""
    return [FunctionVerdict(verdict=Verdict(app=app, function=name, verdict=verdict), problem=why) for name in names]


def judged(app: str, outcomes: Iterable[CaseOutcome], names: Iterable[str]) -> list[FunctionVerdict]:
    """A verdict per function in `names`; one without a case has failed."""
    by_name = {outcome.case.function: outcome for outcome in outcomes}
    return [_judge(app, name, by_name.get(name)) for name in names]


def _judge(app: str, name: str, outcome: CaseOutcome | None) -> FunctionVerdict:
    if outcome is None:
        return FunctionVerdict(verdict=Verdict(app=app, function=name, verdict="failed"), problem="no case calls it")
    verdict = Verdict(
        app=app,
        function=name,
        verdict="failed" if outcome.problem else "ok",
        p50_ms=_rounded(percentile(outcome.ms, 0.5)),
        p95_ms=_rounded(percentile(outcome.ms, 0.95)),
    )
    return FunctionVerdict(verdict=verdict, calls=len(outcome.ms), light=outcome.case.light, problem=outcome.problem)


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 2)


def failures(found: Iterable[FunctionVerdict]) -> list[str]:
    """What does not do what it should, however long it took. An application that is not here has not failed."""
    return [f"{_called(one)}: {one.problem}" for one in found if one.verdict.verdict == "failed"]


def complaints(found: Iterable[FunctionVerdict], targets: Iterable[Target]) -> list[str]:
    """Why the whole is not good, times included; empty when it is."""
    found = list(found)
    slow = [
        f"{_called(one)}: {one.verdict.p95_ms:.0f} ms at the 95th percentile, {LIGHT_MS:.0f} is the most"
        for one in found
        if one.slow and one.verdict.verdict != "failed"
    ]
    return [*failures(found), *slow] + [
        f"{target.name}: {target.measured}, {target.bound:g} is the {'least' if target.at_least else 'most'}"
        for target in targets
        if not target.met
    ]


def _called(one: FunctionVerdict) -> str:
    return f"{one.verdict.app} {one.verdict.function}"
