"""`tasks check`: the exit status is 0 only when everything that was asked for was looked at and found good."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.cluster import output
from actors.cluster.checks import live
from actors.cluster.checks import static as form
from actors.cluster.checks.live import Result, Row, Troubles, complaints, row
from actors.cluster.commands import flag_of
from actors.cluster.config import deploy_files, suites, tasksets
from actors.cluster.config.lanes import Lanes
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.config.suggest import blamed, hint
from actors.cluster.config.suites import Suite
from actors.cluster.runs import doctor, recordings
from actors.desktop.config import ProviderConfig, RemoteConfig, SandboxConfig
from actors.desktop.provider import has_root
from actors.replay.config import TaskRange
from actors.replay.demos import demo_files
from actors.replay.demos.composition import composable, kinds_by_family
from apis.tasks import registry as tasks
from apis.tasks.words import HELD_OUT, SPLITS, TRAIN
from apis.tasksets import published
from runtime.errors import ConfigError
from runtime.system import run as run_loop

SHOWN = 20  # failures, and pieces that task files lack
PIECE_SHOWN = 70  # characters
HEAD = ("FAMILY", "SPLIT", "ROUTE", "PLAYED", "SOLVED", "95 %", "FAULTS", "STEPS", "WALL S", "CPU S")
PLAYED: dict[str, Any] = {
    "route": "all",
    "desktops": 2,
    "overrides": [],
    "recording": None,
}  # arguments of plays -> defaults


def check(args: argparse.Namespace) -> int:
    """Check what `args.suite` names; the exit status."""
    for name, default in PLAYED.items() if args.static else ():
        if getattr(args, name) != default:
            raise ConfigError(f"{flag_of(name)} goes with plays on desktops: --static makes none")
    if tasksets.is_of_files(args.suite):
        if args.recording:
            raise ConfigError("--recording goes with families of generated tasks: task files have no oracles")
        return _check_files(args) if args.static else _check_untouched(args)
    ids = chosen(args, static=args.static)
    return _check_form(ids, args) if args.static else _check_live(ids, args)


def chosen(args: argparse.Namespace, *, static: bool) -> dict[str, list[str]]:
    """Ids by family. Raises ConfigError for a family that the suite does not hold, or when nothing is left."""
    suite = suites.load(args.suite)
    splits = SPLITS if args.split == "both" or (static and not args.split) else (args.split,) if args.split else ()
    for name in args.family:
        if name not in suite.families:
            raise ConfigError(f"--family {name}: suite {suite.name} has no such family; {hint(name, suite.families)}")
    ids = {name: _instances(suite, name, splits, args) for name in args.family or suite.families}
    ids = {name: listed for name, listed in ids.items() if listed}
    if not ids:
        raise ConfigError(f"suite {suite.name} has no instances of split {' or '.join(splits or (TRAIN, HELD_OUT))}")
    return ids


def _instances(suite: Suite, name: str, splits: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Of `splits`, or where there are none of the family's own first: training where it is trained on."""
    has = suites.splits_of(tasks.FAMILIES[name])
    wanted = [split for split in splits or has[:1] if split in has and split in suite.splits]
    return [task_id for split in wanted for task_id in suite.ids(name, split, args.first, args.instances)]


def seats_of(args: argparse.Namespace) -> SeatsConfig:
    """The seats that the arguments ask for. Raises ConfigError."""
    provider = deploy_files.provider_set(args.overrides)
    room = provider.desktops - args.desktops if isinstance(provider, RemoteConfig) else 2
    ready = max(0, min(2, args.desktops, room))
    return SeatsConfig(count=args.desktops, warm_pool=ready, screenshots="none", provider=provider)


def _check_files(args: argparse.Namespace) -> int:
    files, shown = tasksets.files_at(args.suite), output.Progress(as_json=args.json)
    there = {"published": published.is_here(), "root": has_root(seats_of(args).provider)}
    rows = form.check_files(files, lambda done: shown.line(f"{done}/{len(files)} files"), **there)
    bad = [one for one in rows if one.verdict == "unsound" or any(need.startswith("file ") for need in one.needs)]
    if args.json:
        output.document(rows)
        return int(bool(bad))
    for one in rows:
        facts = [*one.needs, *(["judge: published"] if one.judge == "published" else [])]
        facts += [f"solvable: false, {one.offline}"] if one.offline else []
        output.line(output.clean(f"{one.verdict:13}  {one.file}  {'; '.join(facts)[:300]}"))
        for note in one.notes:
            output.line(output.clean(f"{'':13}  note: {note}"))
    if pieces := form.lacking(rows):
        output.line()
        output.table(("LACKING PIECE", "NEEDED BY"), [(name[:PIECE_SHOWN], count) for name, count in pieces[:SHOWN]])
        if pieces[SHOWN:]:
            output.line(f"and {len(pieces) - SHOWN} more pieces")
    verdicts = Counter(one.verdict for one in rows).most_common()
    left = sum(one.verdict == "runnable" and one.judge == "published" for one in rows)
    output.line("\n" + ", ".join(f"{count} {verdict}" for verdict, count in verdicts))
    output.line(f"{sum(one.solvable for one in rows)} can be solved here; the published package judges {left}")
    if pages := sum(one.verdict == "runnable" and bool(one.offline) for one in rows):
        output.line(f"{pages} more can be solved where desktops.network reaches their pages")
    return int(bool(bad))


def _check_untouched(args: argparse.Namespace) -> int:
    """Set up each task that can be played here and judge it untouched: none may fault, none may be solved."""
    asked, seats = published.is_here(), seats_of(args)
    there = {"published": asked, "root": has_root(seats.provider)}
    ids = tasksets.chosen(TaskRange(set=args.suite, first=args.first), **there)[: args.instances]
    unsound = [one for one in tasksets.verdicts(args.suite, **there) if one.verdict == "unsound"]
    refuse_unless_fit(ids, seats.provider)
    results: list[Result] = []
    requests = [live.TaskRoute(task_id, live.UNTOUCHED) for task_id in ids]
    shown = output.Progress(as_json=args.json)

    def heard(result: Result, troubles: Troubles) -> None:
        results.append(result)
        shown.line(f"{len(results)}/{len(ids)} tasks")

    whole = run_loop(live.check(requests, seats, heard, published_metrics=asked))
    bad = [one for one in results if one.success or not one.played or one.reason == "defect"]
    if args.json:
        output.document({"ok": whole and not bad, "interrupted": not whole, "results": results})
    else:
        for one in bad:
            output.line(output.clean(f"{one.task}: {one.reason}: {one.detail}"))
        for verdict in unsound:
            output.line(output.clean(f"{verdict.id}: {verdict.needs[0]}"))
        output.line(f"{len(results)} tasks set up and judged untouched: {len(bad)} faulted or were solved untouched")
    return 130 if not whole else int(bool(bad or unsound))


def _check_form(ids: dict[str, list[str]], args: argparse.Namespace) -> int:
    total, shown = sum(map(len, ids.values())), output.Progress(as_json=args.json)
    report = form.check_families(ids, lambda done: shown.line(f"{done}/{total} instances"))
    findings = report.findings
    if args.json:
        output.document(report)
        return int(bool(findings))
    for finding in findings:
        output.line(f"{finding.where}: {finding.key}: {finding.problem}")
    troubles = f"{len(findings)} troubles in {len({finding.where for finding in findings})} of them"
    kinds = "family" if report.families == 1 else "families"
    output.line(
        f"{report.tasks} instances of {report.families} {kinds}, {report.repeated} of them repeat another:"
        f" {troubles if findings else 'good'}"
    )
    return int(bool(findings))


def _check_live(ids: dict[str, list[str]], args: argparse.Namespace) -> int:
    routes = () if args.route == "all" else (args.route,)
    requests = live.requests_for(ids, routes)
    if not requests:
        raise ConfigError(f"--route {args.route}: none of these families has such an oracle")
    seats, known = seats_of(args), _known(args)
    refuse_unless_fit([listed[0] for listed in ids.values()], seats.provider)
    results: list[Result] = []
    if not args.json:
        output.line(
            f"{len(requests)} episodes by oracles on {args.desktops} desktops at a time (Ctrl-C: finish and sum up)"
        )
    shown = output.Progress(as_json=args.json)

    def heard(result: Result, troubles: Troubles) -> None:
        results.append(result)
        played, faults = sum(one.played for one in results), sum(len(one.faults) for one in results)
        trouble = f"  {troubles.count} warnings, last {troubles.last}" if troubles.count else ""
        solved = sum(one.success for one in results)
        shown.line(f"played {played}/{len(requests)}  solved {solved}  faults {faults}{trouble}")

    whole = run_loop(live.check(requests, seats, heard))
    wanted = Counter(request.kind for request in requests)
    rows = [row(kind, results, wanted[kind]) for kind in sorted(wanted, key=_place)]
    made_up = {name: _composable(name, results, known) for name in ids} if known else {}
    return _show_live(rows, results, args, made_up, whole=whole)


def _known(args: argparse.Namespace) -> dict[str, set[str]]:
    """The kinds of steps that `--recording` shows, by family. Raises ConfigError."""
    if not args.recording:
        return {}
    path = recordings.locate(args.recording, Path(args.runs))
    with blamed("--recording: "):
        return kinds_by_family(demo_files.read(path)[1])


def _composable(family: str, results: Sequence[Result], known: dict[str, set[str]]) -> tuple[int, int]:
    """How many solved plays of `family` have only steps that other families of the recording show, of how many."""
    others = set[str]().union(*(kinds for name, kinds in known.items() if name != family))
    return composable([one.kinds for one in results if one.kind[0] == family and one.success], others)


def _place(kind: tuple[str, str, str]) -> tuple[bool, int, str, str]:
    family, split, route = kind
    return not tasks.FAMILIES[family].trained, list(tasks.FAMILIES).index(family), split, route


def _show_live(
    rows: list[Row],
    results: list[Result],
    args: argparse.Namespace,
    made_up: dict[str, tuple[int, int]],
    *,
    whole: bool,
) -> int:
    bad = complaints(rows)
    failures = [one for one in results if not one.success]
    if args.json:
        output.document(
            {
                "ok": whole and not bad,
                "interrupted": not whole,
                "rows": rows,
                "complaints": bad,
                "failures": failures,
                "composable": made_up,
            }
        )
        return 130 if not whole else int(bool(bad))
    for failure in failures[:SHOWN]:
        output.line(f"\n{failure.task} by {failure.route}: {failure.reason}: {failure.detail}")
        for text in failure.last:
            output.line(f"    {text}")
    if failures[SHOWN:]:
        output.line(f"\nand {len(failures) - SHOWN} more failures (--json has all)")
    if causes := Counter(cause for one in results for cause in one.faults):
        output.line("\nfaults: " + ", ".join(f"{cause} {count}" for cause, count in causes.most_common()))
    output.line()
    output.table(HEAD, [_cells(one) for one in rows])
    output.line()
    for family, (could, of) in made_up.items():
        output.line(f"{family}: {could} of {of} solved plays could be made of steps that its other families show")
    for text in bad:
        output.line(text)
    solved, played = sum(one.solved for one in rows), sum(one.played for one in rows)
    output.line(f"{solved} of {played} solved: {('not good' if bad else 'good') if whole else 'interrupted'}")
    return 130 if not whole else int(bool(bad))


def _cells(one: Row) -> tuple[str, ...]:
    low, high = one.interval
    return (
        one.family if tasks.FAMILIES[one.family].trained else f"{one.family} (never trained)",
        one.split,
        one.route,
        f"{one.played}/{one.wanted}",
        f"{one.solved}" if not one.played or one.good else f"{one.solved}!",
        f"{low:.3f}-{high:.3f}",
        str(one.faults),
        *("-" if value is None else f"{value:.1f}" for value in (one.steps, one.wall_s)),
        "-" if one.cpu_s is None else f"{one.cpu_s:.2f}",
    )


def refuse_unless_fit(ids: Sequence[str] = (), provider: ProviderConfig | None = None) -> None:
    """Raise ConfigError with what this machine lacks for desktops of `provider` on which `ids` are played."""
    lanes = Lanes(train=[], eval=list(ids), demo=[])
    seats = SeatsConfig(count=1, warm_pool=0, provider=provider or SandboxConfig())
    needs = doctor.RunNeeds(deploy=Deploy(desktops=seats), apps=doctor.apps_of(lanes))
    if bad := next((check for check in doctor.examine(needs) if check.fatal), None):
        raise ConfigError(f"no desktops for this here: {bad.name}: {bad.found}; mend it with: {bad.mend}")
