"""Starting runs and changing them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from actors.cluster.commands import WEB_PORT, Help, flag, flag_of, refuse_given, take, take_run
from runtime.program import program

if TYPE_CHECKING:
    from actors.cluster.runs.requests import WantedRuns

RUN_HELP = Help(
    "train: run a deploy file",
    "Run FILE (a path, or a bundled name: smoke): boot desktops, record demonstrations, clone, train, evaluate.\n"
    "Ctrl-C ends the run cleanly, a second one at once. Several seeds become runs NAME-SEED and one NAME-report.\n"
    "--resume goes on as it was begun; other seeds may be named. A run of its own takes a --set from there on.\n"
    "Exit status 1: it did not do what FILE requires.",
    "examples:\n"
    "  computerrl run local --dry-run                         check and show the plan, start nothing\n"
    "  computerrl run local --web --set desktops.count=2      with a live page in the browser\n"
    "  computerrl run local --resume                          continue what is newest of that file\n"
    "  computerrl run local --from cold@0.900 --name warm     a new run from another's checkpoint\n"
    "  computerrl run local --seed 0 1 2 --name three         the same job from three seeds\n",
)
APPLY_HELP = Help(
    "change a live run: more or fewer desktops, processes, samplers",
    "Make a live run what FILE says, or its own settings with --set. Print the difference: + begins, - ends, ~ changes."
    " Seats that leave end their episodes first. A key that is read at the start alone is refused.\n"
    "Exit status 1: the run ended meanwhile.",
    "examples:\n  computerrl apply last --set desktops.count=8 --dry-run\n",
)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="deploy file: a path, or the name of a bundled one")
    take(parser, "set")
    seeds = {"nargs": "+", "action": "extend", "type": int, "default": []}
    flag(parser, "--seed", "N", "run FILE once with each of these", **seeds)
    flag(parser, "--resume", "", "continue the newest of FILE, or --name", action="store_true")
    flag(parser, "--dry-run", "", "check the file, print the plan and start nothing", action="store_true")
    printed = "print the file with all that it extends, --set and defaults; start nothing"
    flag(parser, "--print", "", printed, action="store_true")
    forked = "begin from another run's checkpoint (default: its newest), with optimizer, reservoir and curriculum"
    flag(parser, "--from", "RUN[@VERSION]", forked, dest="fork")
    take(parser, "name", "runs")
    served = f"serve the live page at this machine's PORT meanwhile (default: {WEB_PORT}; 0: any free one)"
    flag(parser, "--web", "PORT", served, nargs="?", const=WEB_PORT, type=_port)
    flag(parser, "--json", "", "with --dry-run: print the plan as one JSON document", action="store_true")


def _port(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word} is no port; where it is FILE, put it before --web") from None


def wanted(args: argparse.Namespace) -> WantedRuns:
    """What the words of `run` ask for. Raises ConfigError where `last` names no recording or no weights."""
    from actors.cluster.runs.requests import WantedRuns, pinned
    from actors.cluster.runs.run_folder import Asked

    if args.resume:
        refuse_given(args, ["fork"], "a run that goes on has its own checkpoint")
    runs = Path(args.runs)
    seeds, overrides = list(dict.fromkeys(args.seed)), pinned(args.overrides, runs)
    asked = Asked(seeds=seeds, overrides=overrides, fork=args.fork or "")
    return WantedRuns(file=args.file, runs=runs, name=args.name, resume=args.resume, dry=args.dry_run, asked=asked)


def _run(args: argparse.Namespace) -> int:
    from actors.cluster import output
    from actors.cluster.runs import run as runcommand
    from actors.cluster.runs.requests import resolve

    if args.json and not args.dry_run:
        args.parser.error(f"--json goes with --dry-run; a run's figures are in  {program()} report RUN --json")
    if args.web is not None and (args.print or args.dry_run):
        args.parser.error("--web goes with a run that is started: leave it out")
    if args.print:
        return _print(args)
    runs = resolve(wanted(args))
    for request in runs:
        if request.warning:
            output.line(request.warning, to=sys.stderr)
    return runcommand.dry_run(runs, as_json=args.json) if args.dry_run else runcommand.start(runs, web=args.web)


def _print(args: argparse.Namespace) -> int:
    from actors.cluster import output
    from actors.cluster.config import deploy_files

    given = [name for name in ("seed", "resume", "dry_run", "json", "fork") if getattr(args, name)]
    if given:
        args.parser.error(f"--print is of the whole file: leave {flag_of(given[0])} out")
    output.write(deploy_files.resolved(args.file, args.overrides), sys.stdout)
    return 0


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    parser.add_argument("file", metavar="FILE", nargs="?", help="deploy file (default: what the run has now)")
    flag(parser, "--dry-run", "", "print the difference and change nothing", action="store_true")
    take(parser, "set", "runs")


def _apply(args: argparse.Namespace) -> int:
    from actors.cluster import output
    from actors.cluster.config import deploy_files
    from actors.cluster.runs import apply, run_folder
    from runtime.control import command
    from runtime.errors import ActorGone, ConfigError
    from runtime.messaging.message import encode

    folder = run_folder.find(Path(args.runs), args.run)
    if args.file is None and not args.overrides:
        raise ConfigError("name a FILE, or a change with --set PATH=VALUE")
    if args.file is None:
        deploy = deploy_files.stored(folder, args.overrides)
    else:
        deploy, _ = deploy_files.load(args.file, args.overrides)
    if run_folder.owner(folder) is None:
        line = run_folder.to_continue(run_folder.read_record(folder), folder)
        raise ConfigError(f"run {folder.name} is not live: go on with  {line}  and --set PATH=VALUE")
    try:
        command(folder, apply.COMMAND, encode(apply.WantedSettings(deploy=deploy, dry_run=args.dry_run)), output.line)
    except ActorGone as error:
        output.news(f"run {folder.name}: {error}")
        return 1
    return 0


COMMANDS = {
    "run": (RUN_HELP, _run_arguments, _run),
    "apply": (APPLY_HELP, _apply_arguments, _apply),
}
