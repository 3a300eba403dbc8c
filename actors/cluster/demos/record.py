"""`demos record`: a run with a ledger and seats and nothing that learns. A kill loses no demonstration."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import paths as places
from actors.cluster.commands import flag_of, refuse_given
from actors.cluster.config import deploy_files, suites
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig, RunConfig, SeatsConfig
from actors.cluster.config.suggest import blamed
from actors.cluster.runs import loop, run_folder, weights
from actors.cluster.runs import run as runcommand
from actors.cluster.runs.requests import request_of
from actors.cluster.runs.run_folder import RECORD
from actors.desktop.config import PromptConfig
from actors.entropulse.config import EvaluationConfig
from actors.replay.config import TaskRange, TasksConfig
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
    return Deploy(
        run=RunConfig(seed=args.seed),
        model=ModelConfig(path=_model(args)),
        prompt=PromptConfig(format=args.format, action_space=args.actions),
        tasks=TasksConfig(demo=_listed(args), max_turns=args.max_turns),
        demos=DemonstrationsConfig(count=args.count, noise=args.noise, routes=args.routes, attempts_per_demo=2.0),
        desktops=SeatsConfig(
            count=args.desktops,
            warm_pool=min(2, args.desktops),
            provider=deploy_files.provider_set(args.overrides),
        ),
        evaluation=EvaluationConfig(enabled=False),
    )


def _model(args: argparse.Namespace) -> str:
    with blamed("--model "):
        return weights.locate(args.model, Path(args.runs)).folder if args.model else ""


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
