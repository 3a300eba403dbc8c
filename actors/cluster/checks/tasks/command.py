"""`tasks check`: from arguments to a verdict.

Invariant: the exit status is 0 only when everything that was asked for was looked at and found good.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from actors.cluster import output
from actors.cluster.checks.tasks import live
from actors.cluster.checks.tasks import static as form
from actors.cluster.checks.tasks.display import HEAD, Progress, cells, stream
from actors.cluster.checks.tasks.live import Troubles
from actors.cluster.checks.tasks.tally import Result, Row, complaints, row
from actors.cluster.config import deploy_files, suites, tasksets
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.config.suggest import hint
from actors.cluster.config.suites import Suite
from actors.cluster.runs import doctor
from actors.cluster.runs.requests import flag_of
from actors.desktop.config import ProviderConfig
from actors.replay.config import TaskRange, TasksConfig
from apis.tasks import registry as tasks
from apis.tasks.words import HELD_OUT, SPLITS, TRAIN
from apis.tasksets import published
from runtime.errors import ConfigError
from runtime.system import run as run_loop

FAILURES_SHOWN = 20
PLAYED: dict[str, Any] = {  # arguments of plays -> defaults
    "out": None, "route": "all", "actions": "both", "noise": 0.0, "desktops": 2, "overrides": [],
}  # fmt: skip


def check(args: argparse.Namespace) -> int:
    """Check what `args.suite` names; the exit status."""
    if args.instances < 1 or args.first < 0 or args.desktops < 1:
        raise ConfigError("--instances and --desktops count from 1, --first from 0")
    if not 0 <= args.noise < 1:
        raise ConfigError(f"--noise {args.noise:g}: a share from 0 to below 1")
    idle = [name for name, default in PLAYED.items() if args.static and getattr(args, name) != default]
    if idle:
        raise ConfigError(f"{flag_of(idle[0])} goes with plays on desktops: --static makes none")
    if tasksets.is_of_files(args.suite):
        return _check_files(args)
    suite = suites.load(args.suite)
    ids = chosen(suite, args.family, splits_for(args.split, static=args.static), args.first, args.instances)
    return _check_form(ids, args) if args.static else _check_live(ids, args)


def splits_for(wanted: str | None, *, static: bool) -> tuple[str, ...]:
    """The splits to look at; () is each family's own first: training where it is trained on, else held out."""
    if wanted == "both" or (static and not wanted):
        return SPLITS
    return (wanted,) if wanted else ()


def chosen(
    suite: Suite, only: Sequence[str], splits: tuple[str, ...], first: int, instances: int
) -> dict[str, list[str]]:
    """Ids by family. Raises ConfigError for a family that the suite does not hold, or when nothing is left."""
    for name in only:
        if name not in suite.families:
            raise ConfigError(f"--family {name}: suite {suite.name} has no such family; {hint(name, suite.families)}")
    found: dict[str, list[str]] = {}
    for name in only or suite.families:
        has = suites.splits_of(tasks.FAMILIES[name])
        for split in splits or has[:1]:
            if split in has and split in suite.splits:
                found.setdefault(name, []).extend(suite.ids(name, split, first, instances))
    if not found:
        raise ConfigError(f"suite {suite.name} has no instances of split {' or '.join(splits or (TRAIN, HELD_OUT))}")
    return found


def _check_files(args: argparse.Namespace) -> int:
    files = tasksets.files_at(args.suite)
    if not args.static:
        return _check_untouched(args)
    with Progress(stream(as_json=args.json)) as shown:
        rows = form.check_files(
            files, lambda done: shown.line(f"{done}/{len(files)} files"), published=published.is_here()
        )
    bad = [
        found for found in rows if found.verdict == "unsound" or any(need.startswith("file ") for need in found.needs)
    ]
    if args.json:
        output.document(rows)
        return 1 if bad else 0
    for found in rows:
        said = [*found.needs, *(["judge: published"] if found.judge == "published" else [])]
        said += [f"solvable: false, {found.offline}"] if found.offline else []
        output.line(output.clean(f"{found.verdict:13}  {found.file}  {'; '.join(said)[:300]}"))
        for note in found.notes:
            output.line(output.clean(f"{'':13}  note: {note}"))
    verdicts = Counter(found.verdict for found in rows).most_common()
    left = sum(found.verdict == "runnable" and found.judge == "published" for found in rows)
    solvable = sum(found.solvable for found in rows)
    output.line("\n" + ", ".join(f"{count} {verdict}" for verdict, count in verdicts))
    output.line(f"{solvable} can be solved here; the published package judges {left}")
    return 1 if bad else 0


def _check_untouched(args: argparse.Namespace) -> int:
    """Set up each task that can be played here and judge it untouched: none may fault, none may be solved."""
    asked = published.is_here()
    ids = tasksets.chosen(TaskRange(set=args.suite, first=args.first), published=asked)[: args.instances]
    unsound = [one for one in tasksets.verdicts(args.suite, published=asked) if one.verdict == "unsound"]
    settings = live.Settings(
        seats=args.desktops,
        provider=deploy_files.provider_set(args.overrides),
        published_metrics=asked,
    )
    refuse_unless_fit(ids, settings.provider)
    results: list[Result] = []
    requests = [live.TaskRoute(task_id, live.UNTOUCHED) for task_id in ids]
    with Progress(stream(as_json=args.json)) as shown, _open(args.out) as out:

        def heard(result: Result, troubles: Troubles) -> None:
            results.append(result)
            shown.line(f"{len(results)}/{len(ids)} tasks")

        whole = run_loop(live.check(requests, settings, heard, out))
    bad = [found for found in results if found.success or not found.played or found.reason == "defect"]
    if args.json:
        output.document({"ok": whole and not bad, "interrupted": not whole, "results": results})
    else:
        for found in bad:
            output.line(output.clean(f"{found.task}: {found.reason}: {found.detail}"))
        for one in unsound:
            output.line(output.clean(f"{one.id}: {one.needs[0]}"))
        output.line(f"{len(results)} tasks set up and judged untouched: {len(bad)} faulted or were solved untouched")
    return 130 if not whole else int(bool(bad or unsound))


def _check_form(ids: dict[str, list[str]], args: argparse.Namespace) -> int:
    total = sum(map(len, ids.values()))
    with Progress(stream(as_json=args.json)) as shown:
        report = form.check_families(ids, lambda done: shown.line(f"{done}/{total} instances"))
    return _show_form(report, args)


def _show_form(report: form.Report, args: argparse.Namespace) -> int:
    found = report.findings
    if args.json:
        output.document(report)
        return 1 if found else 0
    for finding in found:
        output.line(f"{finding.where}: {finding.key}: {finding.problem}")
    bad = len({finding.where for finding in found})
    if found:
        output.line()
        common = Counter(finding.problem for finding in found).most_common(10)
        output.table(("TIMES", "PROBLEM"), [(times, problem[:150]) for problem, times in common])
        output.line()
    kinds = "family" if report.families == 1 else "families"
    of = f" of {report.families} {kinds}, {report.repeated} of them repeat another" if report.families else ""
    said = f"{len(found)} troubles in {bad} of them" if found else "good"
    output.line(f"{report.tasks} instances{of}: {said}")
    return 1 if found else 0


def _check_live(ids: dict[str, list[str]], args: argparse.Namespace) -> int:
    routes = () if args.route == "all" else (args.route,)
    requests = live.requests_for(ids, routes, args.actions)
    if not requests:
        raise ConfigError(f"--route {args.route} --actions {args.actions}: none of these families has such an oracle")
    settings = live.Settings(
        seats=args.desktops, noise=args.noise, actions=args.actions, provider=deploy_files.provider_set(args.overrides)
    )
    refuse_unless_fit([listed[0] for listed in ids.values()], settings.provider)
    results: list[Result] = []
    wanted = Counter((request.task.split("/")[0], request.task.split("/")[1], request.route) for request in requests)
    to = stream(as_json=args.json)
    if not args.json:
        output.line(
            f"{len(requests)} episodes by oracles on {args.desktops} desktops at a time (Ctrl-C: finish and sum up)"
        )
    with Progress(to) as shown, _open(args.out) as out:

        def heard(result: Result, troubles: Troubles) -> None:
            results.append(result)
            if shown.due:
                trouble = f"{troubles.count} warnings, last {troubles.last}" if troubles.count else ""
                shown.rows(rows_of(wanted, results), trouble)

        whole = run_loop(live.check(requests, settings, heard, out))
    rows = rows_of(wanted, results)
    return _show_live(rows, results, args, whole=whole)


def rows_of(wanted: dict[tuple[str, str, str], int], results: list[Result]) -> list[Row]:
    """One row per family, split and route that was asked for."""
    return [
        row(family, split, route, results, trained=tasks.FAMILIES[family].trained, wanted=count)
        for (family, split, route), count in sorted(wanted.items(), key=lambda pair: _place(pair[0]))
    ]


def _place(key: tuple[str, str, str]) -> tuple[bool, int, str, str]:
    family, split, route = key
    return not tasks.FAMILIES[family].trained, list(tasks.FAMILIES).index(family), split, route


def _show_live(rows: list[Row], results: list[Result], args: argparse.Namespace, *, whole: bool) -> int:
    bad = complaints(rows)
    failures = [found for found in results if not found.success]
    if args.json:
        output.document(
            {"ok": whole and not bad, "interrupted": not whole, "rows": rows, "complaints": bad, "failures": failures}
        )
    else:
        for found in failures[:FAILURES_SHOWN]:
            output.line(f"\n{found.task} by {found.route}: {found.reason}: {found.detail}")
            for text in found.last:
                output.line(f"    {text}")
        if len(failures) > FAILURES_SHOWN:
            output.line(f"\nand {len(failures) - FAILURES_SHOWN} more failures (--out FILE keeps all)")
        causes = Counter(cause for found in results for cause in found.faults)
        if causes:
            output.line("\nfaults: " + ", ".join(f"{cause} {count}" for cause, count in causes.most_common()))
        output.line()
        output.table(HEAD, [cells(found) for found in rows])
        output.line()
        for text in bad:
            output.line(text)
        solved, played = sum(found.solved for found in rows), sum(found.played for found in rows)
        verdict = "not good" if bad else "good"
        output.line(f"{solved} of {played} solved: {verdict if whole else 'interrupted'}")
    if not whole:
        return 130
    return 1 if bad else 0


def _open(path: str | None) -> AbstractContextManager[IO[str] | None]:
    if path is None:
        return nullcontext()
    try:
        return Path(path).open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}") from None


def refuse_unless_fit(ids: list[str], provider: ProviderConfig) -> None:
    """Raise ConfigError with what this machine lacks for desktops of `provider` on which `ids` are played."""
    seats = SeatsConfig(count=1, warm_pool=0, provider=provider)
    bad = [found for found in doctor.examine(Deploy(tasks=TasksConfig(eval=list(ids)), desktops=seats)) if found.fatal]
    if bad:
        raise ConfigError(f"no desktops for this here: {bad[0].name}: {bad[0].found}; mend it with: {bad[0].mend}")
