"""`apis check`: calls every function of the applications on real desktops, rightly and wrongly, and times the calls.

The exit status is 0 only when every function passed whose application was asked for and is installed.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.checks.desk import opened, provider, sandbox_set
from actors.cluster.checks.tasks import refuse_unless_fit
from actors.cluster.config.suggest import hint
from actors.cluster.runs import doctor
from actors.desktop.link import LinkDown
from actors.desktop.providers import home
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault
from apis import built, catalogue
from apis.applications import ALIASES, APP_NAMES, app_named
from apis.apps.check.case import NotSo, tables, tables_of
from apis.apps.check.run import CaseOutcome, run
from apis.catalogue import TOOLS
from runtime.errors import ConfigError
from runtime.system import run as run_loop

APPS = tuple(name for name in APP_NAMES if name in TOOLS)
LIGHT_MS = 150.0  # at the 95th percentile, of a call that neither starts nor exports anything


class FunctionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One function."""

    app: str
    function: str
    verdict: str  # ok, failed, unavailable
    p50_ms: float | None = None
    p95_ms: float | None = None
    calls: int = 0
    light: bool = True  # neither starts nor exports anything
    problem: str = ""

    @property
    def slow(self) -> bool:
        """Whether it did what it should, and took too long."""
        return self.verdict == "ok" and self.light and self.p95_ms is not None and self.p95_ms > LIGHT_MS


def check(args: argparse.Namespace) -> int:
    """Check what the arguments name; the exit status."""
    apps, only = [_app(name) for name in args.app] or list(APPS), args.function
    if args.dir:
        folder = Path(args.dir)
        catalogue.use([f"{folder}@{built.accepted(folder)}"])
        api = built.read(folder)
        apps, only = [api.app], [each.name for each in api.functions]
    names = _functions(apps, only)
    refuse_unless_fit()
    profile = doctor.check_profile()
    if not profile.ok and any(app.startswith("libreoffice") for app in names):
        output.line(f"{profile.name}: {profile.found}, so times are other ones: {profile.mend}", to=sys.stderr)
    verdicts = run_loop(_all(names, args, output.Progress(as_json=args.json)))
    wrong = complaints(verdicts, timed=not args.no_targets)
    if args.json:
        output.document(verdicts)
    else:
        head = ("APP", "FUNCTION", "VERDICT", "CALLS", "P50 MS", "P95 MS", "")
        output.table(head, [_row(one) for one in verdicts])
        output.line()
    for text in wrong:
        output.line(text, to=sys.stderr if args.json else None)
    if not args.json:
        counts = Counter(one.verdict for one in verdicts)
        output.line(", ".join(f"{counts[name]} {name}" for name in ("ok", "failed", "unavailable")))
    return int(bool(wrong))


def _app(name: str) -> str:
    wanted = ALIASES.get(name, name)
    if wanted not in APPS:
        known = [*APPS, *(alias for alias, app in ALIASES.items() if app in APPS)]
        raise ConfigError(f"--app {name}: no application with functions; {hint(name, known)}")
    return wanted


def functions(app: str) -> list[str]:
    """The declared functions."""
    return [function.name for function in TOOLS.get(app, ())]


def _functions(apps: list[str], only: list[str]) -> dict[str, list[str]]:
    """The functions to check by application. Raises ConfigError for one that none of them has."""
    every = [name for app in apps for name in functions(app)]
    for name in only:
        if name not in every:
            raise ConfigError(f"--function {name}: {' and '.join(apps)} has no such function; {hint(name, every)}")
    return {app: [name for name in functions(app) if not only or name in only] for app in apps}


async def _all(names: dict[str, list[str]], args: argparse.Namespace, shown: output.Progress) -> list[FunctionVerdict]:
    verdicts: list[FunctionVerdict] = []
    async with provider(sandbox_set(args.overrides)) as made:
        for app, wanted in names.items():
            if lacking := missing(app):
                verdicts += without(app, wanted, "unavailable", lacking)
                continue
            try:
                outcomes = await _outcomes(made, app, wanted, args.repeats, shown)
                verdicts += judged(app, outcomes, [name for name in wanted if name not in _tools(app)])
                verdicts += without(app, _tools(app) & set(wanted), "unavailable", "a tool of an MCP server: no cases")
            except (DesktopFault, LinkDown, NotSo, TimeoutError) as error:
                verdicts += without(app, wanted, "failed", str(error) or "it took too long")
    return verdicts


async def _outcomes(
    made: SandboxProvider, app: str, wanted: list[str], repeats: int, shown: output.Progress
) -> list[CaseOutcome]:
    outcomes = []
    for table in tables_of(app):
        if any(case.function in wanted for case in table.cases):
            shown.line(f"{app}: opening it")
            async with opened(made, table) as desk:
                times = 0 if table.fresh else repeats  # what was built was timed then
                outcomes += await run(table, desk, times, lambda what: shown.line(f"{app}: {what}"), wanted)
    return outcomes


def _tools(app: str) -> set[str]:
    """The functions of an application that are tools of MCP servers."""
    return {each.name for api in built.folders().values() if api.server and api.app == app for each in api.functions}


def missing(app: str) -> str:
    """What this machine lacks for an application; "" where it is here."""
    lacking = doctor.absent(doctor.packages("setup", app_named(app).packages)) if app in tables() else []
    if lacking:
        names = " ".join(lacking)
        return f"missing: {names}: make setup   (or: apt-get install --no-install-recommends {names})"
    if app == "code":
        return f"{home.editor_lacking()}: {home.editor_mend()}" if home.editor_lacking() else ""
    program = app_named(app).argv[0]
    return "" if shutil.which(program) else f"there is no program {program}"


def without(app: str, names: Iterable[str], verdict: str, why: str) -> list[FunctionVerdict]:
    """One verdict for all functions of an application that was not, or could not be, opened."""
    return [FunctionVerdict(app=app, function=name, verdict=verdict, problem=why) for name in names]


def judged(app: str, outcomes: Iterable[CaseOutcome], names: Iterable[str]) -> list[FunctionVerdict]:
    """A verdict per function in `names`; one without a case has failed, and one of several by any of them."""
    by_name = {each.case.function: each for each in sorted(outcomes, key=lambda each: bool(each.problem))}
    return [_judged(app, name, by_name.get(name)) for name in names]


def _judged(app: str, name: str, outcome: CaseOutcome | None) -> FunctionVerdict:
    if outcome is None:
        return FunctionVerdict(app=app, function=name, verdict="failed", problem="no case calls it")
    return FunctionVerdict(
        app=app,
        function=name,
        verdict="failed" if outcome.problem else "ok",
        p50_ms=percentile(outcome.ms, 0.5) if outcome.ms else None,
        p95_ms=percentile(outcome.ms, 0.95) if outcome.ms else None,
        calls=len(outcome.ms),
        light=outcome.case.light,
        problem=outcome.problem,
    )


def percentile(ms: Sequence[float], share: float) -> float:
    """The smallest of `ms` that at least `share` of them do not exceed (nearest rank)."""
    return round(sorted(ms)[max(0, math.ceil(share * len(ms)) - 1)], 2)


def complaints(verdicts: Iterable[FunctionVerdict], *, timed: bool = True) -> list[str]:
    """Why the whole is not good, slow calls only where `timed`. An application that is not here has not failed."""
    wrong = [f"{one.app} {one.function}: {one.problem}" for one in verdicts if one.verdict == "failed"]
    return wrong + [
        f"{one.app} {one.function}: {one.p95_ms:.0f} ms at the 95th percentile, {LIGHT_MS:.0f} is the most"
        for one in verdicts
        if timed and one.slow
    ]


def _row(one: FunctionVerdict) -> tuple[object, ...]:
    times = ["-" if ms is None else f"{ms:.1f}" for ms in (one.p50_ms, one.p95_ms)]
    note = one.problem[:100] or ("starts or exports" if not one.light else "")
    return (one.app, one.function, one.verdict, one.calls or "-", *times, note)
