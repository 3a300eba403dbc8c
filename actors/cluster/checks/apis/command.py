"""`apis check`: from arguments to verdicts.

Invariant: the exit status is 0 only when every function passed whose application was asked for and is installed. To
pass, it was called, did what it should, and kept its targets.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections import Counter

import msgspec

from actors.cluster import output
from actors.cluster.checks.apis import cost, verdicts
from actors.cluster.checks.apis.cost import APP, counted
from actors.cluster.checks.apis.desk import RealDesk, opened, provider, sandbox_set
from actors.cluster.checks.apis.targets import Target
from actors.cluster.checks.apis.verdicts import FunctionVerdict
from actors.cluster.checks.tasks.display import Progress, stream
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import hint
from actors.cluster.runs import doctor
from actors.desktop.link import LinkDown
from actors.desktop.providers import home
from actors.desktop.providers.sandbox import cgroups
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault
from apis.applications import ALIASES, APP_NAMES, app_named
from apis.apps.check.case import NotSo, tables
from apis.apps.check.run import run
from apis.apps.check.steps import REFUSED
from apis.catalogue import TOOLS
from runtime.errors import ConfigError
from runtime.system import run as run_loop

APPS = tuple(name for name in APP_NAMES if name in TOOLS)


def check(args: argparse.Namespace) -> int:
    """Check what the arguments name; the exit status."""
    if args.repeats < 0:
        raise ConfigError(f"--repeats {args.repeats}: counts from 0")
    apps = [_app(name) for name in args.app] or list(APPS)
    names = _functions(apps, args.function)
    bad = [found for found in doctor.examine(Deploy()) if found.fatal]
    if bad:
        raise ConfigError(f"no desktops here: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}")
    profile = doctor.check_profile()
    if not profile.ok and any(app.startswith("libreoffice") for app in names):
        output.line(f"{profile.name}: {profile.found}, so times are other ones: {profile.mend}", to=sys.stderr)
    with Progress(stream(as_json=args.json)) as shown:
        found, targets, notes = run_loop(_all(names, args, shown))
    said = verdicts.failures(found) if args.no_targets else verdicts.complaints(found, targets)
    _show(found, targets, notes, said, as_json=args.json)
    return 1 if said else 0


def _app(name: str) -> str:
    wanted = ALIASES.get(name, name)
    if wanted not in APPS:
        known = [*APPS, *(alias for alias, app in ALIASES.items() if app in APPS)]
        raise ConfigError(f"--app {name}: no application with functions; {hint(name, known)}")
    return wanted


def _functions(apps: list[str], only: list[str]) -> dict[str, list[str]]:
    """The functions to check by application. Raises ConfigError for one that none of them has."""
    every = [name for app in apps for name in verdicts.functions(app)]
    for name in only:
        if name not in every:
            raise ConfigError(f"--function {name}: {' and '.join(apps)} has no such function; {hint(name, every)}")
    return {app: [name for name in verdicts.functions(app) if not only or name in only] for app in apps}


async def _all(
    names: dict[str, list[str]], args: argparse.Namespace, shown: Progress
) -> tuple[list[FunctionVerdict], list[Target], list[str]]:
    found: list[FunctionVerdict] = []
    targets: list[Target] = []
    notes: list[str] = []
    async with provider(sandbox_set(args.overrides)) as made:
        for app, wanted in names.items():
            lacking = missing(app)
            if lacking:
                found += verdicts.without(app, wanted, "unavailable", lacking)
            elif wanted and app in tables():
                try:
                    mine, timed = await _one(made, app, wanted, args.repeats, shown)
                    found += mine
                    targets += timed
                    if app == cost.APP and "save" in wanted and args.repeats:
                        notes.append(await _saving(made, shown))
                except (DesktopFault, LinkDown, NotSo, TimeoutError) as error:
                    found += verdicts.without(app, wanted, "failed", str(error) or "it took too long")
            else:
                found += verdicts.judged(app, [], wanted)
    return found, targets, notes


async def _saving(made: SandboxProvider, shown: Progress) -> str:
    """What a save costs, or why that is not known."""
    shown.line(f"{cost.APP}: saving workbooks of more and more sheets")
    try:
        return await saving_cost(made)
    except (DesktopFault, LinkDown, NotSo, TimeoutError) as error:  # has no bound: what failed elsewhere says so there
        return f"save: its processor time was not measured: {str(error) or 'it took too long'}"


async def _one(
    made: SandboxProvider, app: str, wanted: list[str], repeats: int, shown: Progress
) -> tuple[list[FunctionVerdict], list[Target]]:
    table = tables()[app]
    targets: list[Target] = []
    shown.line(f"{app}: opening it")
    async with opened(made, table) as desk:
        outcomes = await run(table, desk, repeats, lambda what: shown.line(f"{app}: {what}"), wanted)
        if app == cost.APP and repeats:
            shown.line(f"{app}: a fresh interpreter per call")
            try:
                targets = await cost.measure(desk, repeats)
            except (
                NotSo,
                TimeoutError,
            ) as error:  # the functions have their verdicts; what they cost is another matter
                shown.line(f"{app}: not measured: {str(error) or 'it took too long'}")
                targets = cost.unmeasured()
    return verdicts.judged(app, outcomes, wanted), targets


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


def _show(
    found: list[FunctionVerdict], targets: list[Target], notes: list[str], said: list[str], *, as_json: bool
) -> None:
    if as_json:
        output.document([one.verdict for one in found])
        for text in said:
            output.line(text, to=sys.stderr)
        return
    head = ("APP", "FUNCTION", "VERDICT", "CALLS", "P50 MS", "P95 MS", "")
    output.table(head, [_row(one) for one in found])
    if targets:
        output.line()
        output.table(("TARGET", "MEASURED", "BOUND", ""), [target.row() for target in targets])
    for text in notes:
        output.line()
        output.line(text)
    output.line()
    for text in said:
        output.line(text)
    counts = Counter(one.verdict.verdict for one in found)
    output.line(", ".join(f"{counts[name]} {name}" for name in ("ok", "failed", "unavailable")))


def _row(one: FunctionVerdict) -> tuple[object, ...]:
    verdict = one.verdict
    times = ["-" if ms is None else f"{ms:.1f}" for ms in (verdict.p50_ms, verdict.p95_ms)]
    note = one.problem[:100] or ("starts or exports" if not one.light else "")
    return (verdict.app, verdict.function, verdict.verdict, one.calls or "-", *times, note)


SHEETS = (1, 11, 21)
SAVES = 7  # of each number of sheets


async def saving_cost(provider: SandboxProvider) -> str:
    """A line for people, from a desktop of its own. Raises as `opened`."""
    table = tables()[APP]
    one = {"sheets": ["1"], "rows": [[f"{row}.{column}" for column in range(3)] for row in range(5)]}
    first = {path: {"workbook": one} for path in table.files}
    async with opened(provider, msgspec.structs.replace(table, files=first)) as desk:
        spent = [await _saves(desk, sheets) for sheets in SHEETS]
    slope, start = statistics.linear_regression(SHEETS, spent)
    counts = ", ".join(map(str, SHEETS))
    return (
        f"save: {start + slope:.0f} ms of CPU for a workbook of one sheet, {slope:.1f} for each further, empty one"
        f" (a line through {counts} sheets, medians of {SAVES})"
    )


async def _saves(desk: RealDesk, sheets: int) -> float:
    """Milliseconds of processor time that a save of so many sheets takes."""
    folders = counted(desk)
    for number in (*range(1, sheets + 1), 1):
        await _done(desk, "switch_active_sheet", sheet_name=str(number))
    spent = []
    for number in range(SAVES):
        await _done(desk, "set_cell_value", cell="E1", value=str(number))
        await desk.call("settle", timeout_ms=5000, quiet_ms=200)
        before_s = cgroups.cpu_s(folders)
        await _done(desk, "save")
        spent.append(1e3 * (cgroups.cpu_s(folders) - before_s))
    return statistics.median(spent)


async def _done(desk: RealDesk, name: str, **arguments: str) -> None:
    """Call a function. Raises NotSo with what it said where it refuses."""
    said = await desk.tool(name, **arguments)
    if said.startswith(REFUSED):
        raise NotSo(f"{name}: {said}")
