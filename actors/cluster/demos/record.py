"""`demos record`: a run with a ledger and seats and nothing that learns; `show` and `export` of what it recorded.

A kill loses no demonstration. Looking and exporting change nothing of a run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output, tables
from actors.cluster import paths as places
from actors.cluster.commands import flag_of, refuse_given
from actors.cluster.config import deploy_files, suites
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig, RunConfig, SeatsConfig
from actors.cluster.config.suggest import blamed, hint
from actors.cluster.runs import loop, recordings, run_folder, weights
from actors.cluster.runs import run as runcommand
from actors.cluster.runs.requests import request_of
from actors.cluster.runs.run_folder import RECORD
from actors.cluster.tables import TextTable
from actors.desktop.config import PromptConfig
from actors.entropulse.config import EvaluationConfig
from actors.replay.config import TaskRange, TasksConfig
from actors.replay.database import queries
from actors.replay.demos import demo_files
from actors.replay.demos.format import Demo, RecordingHeader
from actors.replay.rules.cold_start import family_of
from apis.actions.spaces import routes_in
from apis.tasks import registry as tasks
from apis.tasks.words import TRAIN
from runtime.errors import ConfigError

INSTANCES_PER_DEMO = 2  # tasks a suite lays out per demonstration wanted: failures don't make it repeat itself
# Flag -> what it is without being given, and the key of a deploy file that says the same.
FLAGS: dict[str, tuple[Any, str]] = {
    "count": (64, "demos.count"),
    "desktops": (2, "desktops.count"),
    "seed": (0, "run.seed"),
    "first": (0, "tasks.demo.0.first"),
    "routes": ([], "demos.routes"),
    "actions": ("both", "prompt.action_space"),
    "noise": (0.0, "demos.noise"),
    "format": ("compact", "prompt.format"),
    "model": ("", "model.path"),
    "max_turns": (12, "tasks.max_turns"),
}


def record(args: argparse.Namespace) -> int:
    """Record, or go on recording; the exit status."""
    runs = Path(args.runs)
    of_tasks = "--tasks " + " ".join(args.tasks) if args.tasks else ""
    what = f"--deploy {args.deploy}" if args.deploy else args.suite or of_tasks
    if args.resume:
        refuse_given(args, (*FLAGS, "overrides"), "--resume goes on as the recording was begun")
        folder = run_folder.newest(runs, args.name, lambda _, found: found.verb == RECORD, "recording")
        label = run_folder.read_record(folder).file
        if what and f"{RECORD} {what}" != label:
            was = label.removeprefix(f"{RECORD} ")
            raise ConfigError(f"{what}: recording {folder.name} was begun with {was}: leave it out")
        deploy = deploy_files.stored(folder)
    else:
        if not what:
            raise ConfigError("nothing to record: name a SUITE, tasks with --tasks ID ..., or --deploy FILE")
        folder = runs / places.named(args.name, "demos")
        deploy = deploy_of(args)
        label = f"{RECORD} {what}"
    request = request_of(folder, deploy, file=label, resume=args.resume)
    return runcommand.carry_out(request, loop.recording())


def deploy_of(args: argparse.Namespace) -> Deploy:
    """The deploy file that records what the arguments ask for. Raises ConfigError."""
    if args.deploy:
        return _of_file(args)
    if args.tasks and (args.suite or args.first is not None):
        raise ConfigError(f"--tasks names them all: leave {'SUITE' if args.suite else '--first'} out")
    unsaid = {name: default for name, (default, _) in FLAGS.items() if getattr(args, name) is None}
    args = argparse.Namespace(**{**vars(args), **unsaid})
    if not 0 <= args.noise < 1:
        raise ConfigError(f"--noise {args.noise:g}: a share from 0 to below 1")
    with blamed("--model "):
        model = weights.locate(args.model, Path(args.runs)).folder if args.model else ""
    return Deploy(
        run=RunConfig(seed=args.seed),
        model=ModelConfig(path=model),
        prompt=PromptConfig(format=args.format, action_space=args.actions),
        tasks=TasksConfig(demo=_listed(args), max_turns=args.max_turns),
        demos=DemonstrationsConfig(count=args.count, noise=args.noise, routes=args.routes, attempts_per_demo=2.0),
        desktops=SeatsConfig(
            count=args.desktops, warm_pool=min(2, args.desktops), provider=deploy_files.provider_set(args.overrides)
        ),
        evaluation=EvaluationConfig(enabled=False),
    )


def _of_file(args: argparse.Namespace) -> Deploy:
    if args.suite or args.tasks:
        raise ConfigError("--deploy FILE says which tasks are demonstrated: leave SUITE and --tasks out")
    for name, (_, path) in FLAGS.items():
        if getattr(args, name) not in (None, []):
            flag = flag_of(name)
            raise ConfigError(f"{flag}: with --deploy the file says it: change it with --set {path}=VALUE")
    deploy, _ = deploy_files.load(args.deploy, args.overrides)
    if not deploy.tasks.demo or not deploy.demos.count:
        raise ConfigError(f"{args.deploy}: it asks for no demonstrations: tasks.demo or demos.count is empty")
    change = msgspec.structs.replace
    return change(
        deploy,
        tasks=change(deploy.tasks, train=[], eval=[]),
        demos=change(deploy.demos, source="", resample_rounds=0),
        evaluation=EvaluationConfig(enabled=False),
    )


def _listed(args: argparse.Namespace) -> list[str | TaskRange]:
    if args.tasks:
        return list(args.tasks)
    suite = suites.load(args.suite)
    families = [
        name
        for name in suite.trained
        if (found := routes_in(args.actions, tasks.FAMILIES[name].routes))
        and (not args.routes or any(route in found for route in args.routes))
    ]
    if not families:
        only = " or ".join(args.routes) or "any"
        kind = f" with a route {only} for actions {args.actions}" if suite.trained else " that may be trained on"
        raise ConfigError(f"{args.suite}: no family{kind}")
    each = max(1, -(-args.count * INSTANCES_PER_DEMO // len(families)))
    numbers = suite.splits.get(TRAIN)
    if numbers is None:
        raise ConfigError(f"{args.suite}: it has no split {TRAIN}, and only that may be demonstrated")
    most = max(1, min(each, numbers.count - args.first))
    suite.ids(families[0], TRAIN, args.first, most)
    if args.count > most * len(families):
        raise ConfigError(f"--count {args.count}: {args.suite} has {most * len(families)} tasks from --first on")
    first = numbers.first + args.first
    return [TaskRange(family=name, split=TRAIN, count=most, first=first) for name in families]


STRATA = ("always", "sometimes", "never")


def show(args: argparse.Namespace) -> int:
    """A recording by family and route."""
    path = recordings.locate(args.recording, Path(args.runs))
    with blamed(""):
        header, demos = demo_files.read(path)
        figures = figures_of(demos)
    if args.json:
        output.document({"recording": str(path), "header": header, "strata": figures, "tasks": tasks_of(header)})
        return 0
    output.prose(
        f"{path}: {header.demos} demonstrations, form {header.form or '-'}, actions {header.actions or '-'},"
        f" observation {queries.versions_text(header.observations)}, tokenizer {header.tokenizer or '-'}\n"
    )
    head = ("Family", "By", "Demos", "Tasks", "Steps", "Prompt tokens", "Response tokens", "Wall s")
    rows: list[tuple[object, ...]] = [tuple(row.values()) for row in figures]
    tables.show(TextTable(head, rows))
    rows = [(family, *(counts[name] for name in STRATA)) for family, counts in tasks_of(header).items()]
    kinds = ("Family", *map(str.capitalize, STRATA))
    tables.show(TextTable(kinds, rows, "tasks by how often the pool's first attempts at them succeeded:\n"))
    return 0


def tasks_of(header: RecordingHeader) -> dict[str, dict[str, int]]:
    """Family -> stratum -> tasks, by their first attempts; empty for a recording without strata."""
    families: dict[str, dict[str, int]] = {}
    for task in header.tasks:
        stratum = "always" if task.wins == task.tries else "sometimes" if task.wins else "never"
        families.setdefault(family_of(task.task), dict.fromkeys(STRATA, 0))[stratum] += 1
    return families


def figures_of(demos: Iterable[Demo]) -> list[dict[str, str | int | float]]:
    """One row per family and route, or who of a pool made them, by name: most tokens, mean steps, median seconds."""
    strata: dict[tuple[str, str], list[tuple[str, int, int, int, float]]] = {}
    for demo in demos:
        prompt = max((len(step.payload.prompt_ids) for step in demo.steps), default=0)
        response = max((len(step.payload.response_ids) for step in demo.steps), default=0)
        row = (demo.task, len(demo.steps), prompt, response, demo.wall_s)
        strata.setdefault((family_of(demo.task), demo.member or demo.route or "-"), []).append(row)
    made = []
    for (family, route), rows in sorted(strata.items()):
        tasks, steps, prompts, responses, walls_s = zip(*rows, strict=True)
        made.append({
            "family": family, "route": route, "demos": len(rows), "tasks": len(set(tasks)),
            "steps": round(statistics.fmean(steps), 1), "prompt_tokens": max(prompts),
            "response_tokens": max(responses), "wall_s": round(statistics.median(walls_s), 1),
        })  # fmt: skip
    return made


def without(header: RecordingHeader, demos: list[Demo], families: list[str]) -> tuple[RecordingHeader, Iterator[Demo]]:
    """A recording but for `families`. Raises ConfigError for one that it does not show, with the nearest."""
    shown = sorted({family_of(demo.task) for demo in demos})
    for family in families:
        if family not in shown:
            raise ConfigError(f"--without {family}: the recording has none of it; {hint(family, shown)}")
    kept = [demo for demo in demos if family_of(demo.task) not in families]
    tried = [each for each in header.tasks if family_of(each.task) not in families]
    return msgspec.structs.replace(header, demos=len(kept), tasks=tried), iter(kept)


def export(args: argparse.Namespace) -> int:
    """Write a recording to a file."""
    path, file = recordings.locate(args.recording, Path(args.runs)), Path(args.file)
    places.refuse_no_file(file, "FILE")
    with blamed(""):
        demo_files.refuse_unwritable(file)
        if file.exists() and not args.force:
            raise ConfigError(f"{file} exists already: name another file, or replace it with --force")
        header, demos = demo_files.read(path)
        if args.without:
            header, demos = without(header, list(demos), args.without)
        if not header.demos:
            raise ConfigError(f"{path}: no demonstrations to export")
        demo_files.write(file, header, demos)
    if args.json:
        output.document({"file": str(file), "header": header, "bytes": file.stat().st_size})
    else:
        output.line(f"{file}: {header.demos} demonstrations, {file.stat().st_size >> 10} KiB")
    return 0
