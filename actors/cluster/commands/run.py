"""Starting runs and changing them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from actors.cluster.commands import WEB_PORT, Help, take_run, take_runs, take_sets
from runtime.program import program

RUN_HELP = Help(
    "train: run a deploy file",
    "Run a deploy file: boot desktops, record demonstrations, clone them, train online, evaluate.\n"
    "FILE is a path or the name of a bundled file (local, smoke). Ctrl-C ends the run cleanly, a second one at once.\n"
    "Several seeds become runs NAME-SEED, one after the other, and one report in NAME-report. To record their\n"
    "demonstrations once, use demos record --deploy FILE, then --set demos.source.\n"
    "--resume passes by what has ended and goes on with the rest as it was begun. --seed and --set need not be given\n"
    "again. Other seeds may be named; a --set that would make later runs differ is refused. A run of its own takes a\n"
    "--set from there on. A phase segment that has begun keeps its length.\n"
    "Exit status: 0 the run did what its file requires, 1 it did not, 2 bad input, 130 interrupted.",
    "examples:\n"
    "  computerrl run local                                   the main job\n"
    "  computerrl run local --dry-run                         check and show the plan, start nothing\n"
    "  computerrl run local --print                           the file with every default\n"
    "  computerrl run smoke --web                             with a live page in the browser\n"
    "  computerrl run smoke --set desktops.count=2 --set run.seed=7\n"
    "  computerrl run local --resume                          continue what is newest of that file\n"
    "  computerrl run local --from cold@0.900 --name warm     a new run from another's checkpoint\n"
    "  computerrl run local --seed 0 1 2 --name three         the same job from three seeds\n"
    "  computerrl run local --resume --name three             what is left of it\n"
    "  computerrl run ablation-async --set replay.max_staleness=0 --seed 0 1 2   the same file with another key\n",
)
PROGRAMME_HELP = Help(
    "play the arms and seeds of a programme, one run at a time",
    "Play the next run of FILE that has no result, at the lowest priority, until H hours are over. What was\n"
    "interrupted goes on. Figures of a run that has ended go to results/programme in FILE's folder, and one table\n"
    "with intervals into results/programme.md, below its line ---.\n"
    "Exit status: 0 nothing is left, or its CPU-hours are spent; 1 the time is up; 2 bad input; 130 interrupted.",
    "examples:\n  computerrl programme --hours 2.5\n  computerrl programme mine.yaml --hours 8 --runs runs/mine\n",
)
APPLY_HELP = Help(
    "change a live run: more or fewer desktops, processes, samplers",
    "Make a live run what FILE says. Prints the difference: + begins, - ends, ~ changes. Desktops, their processes,\n"
    "samplers, evaluation and limits change while the run goes on; seats that leave end their episodes first.\n"
    "Another key is refused with what to do. Without FILE, the run's own settings are taken, with --set over them.\n"
    "What holds then is in the run's folder, and a later --resume goes on with it.\n"
    "Exit status: 0 done, or nothing to do; 1 the run ended meanwhile; 2 refused.",
    "examples:\n"
    "  computerrl apply last mine.yaml --dry-run\n"
    "  computerrl apply last --set desktops.count=8 --set desktops.processes=2\n",
)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="deploy file: a path, or the name of a bundled one")
    take_sets(parser)
    parser.add_argument(
        "--seed", nargs="+", action="extend", type=int, default=[], metavar="N", help="run FILE once with each of these"
    )
    parser.add_argument("--resume", action="store_true", help="continue the newest of FILE, or --name")
    parser.add_argument("--dry-run", action="store_true", help="check the file, print the plan and start nothing")
    printed = "print the file with all that it extends, --set and defaults; start nothing"
    parser.add_argument("--print", action="store_true", help=printed)
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: file's name and the time)")
    forked = "begin from another run's checkpoint (default: its newest), with optimizer, reservoir and curriculum"
    parser.add_argument("--from", dest="fork", metavar="RUN[@VERSION]", help=forked)
    take_runs(parser)
    served = f"serve the live page at this machine's PORT meanwhile (default: {WEB_PORT}; 0: any free one)"
    parser.add_argument("--web", nargs="?", const=WEB_PORT, type=_port, metavar="PORT", help=served)
    parser.add_argument("--json", action="store_true", help="with --dry-run: print the plan as one JSON document")


def _port(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word} is no port; where it is FILE, put it before --web") from None


def _run(args: argparse.Namespace) -> int:
    """Run it."""
    from actors.cluster.runs import run as runcommand

    if args.json and not args.dry_run:
        args.parser.error(f"--json goes with --dry-run; a run's figures are in  {program()} report RUN --json")
    if args.web is not None and (args.print or args.dry_run):
        args.parser.error("--web goes with a run that is started: leave it out")
    if args.print:
        return _print(args)
    return runcommand.dry_run(args) if args.dry_run else runcommand.start(args)


def _print(args: argparse.Namespace) -> int:
    from actors.cluster import output
    from actors.cluster.config import deploy_files
    from actors.cluster.runs.requests import flag_of

    said = [flag for flag in ("seed", "resume", "dry_run", "json", "fork") if getattr(args, flag)]
    if said:
        args.parser.error(f"--print is of the whole file: leave {flag_of(said[0])} out")
    output.write(deploy_files.resolved(args.file, args.overrides), sys.stdout)
    return 0


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    parser.add_argument("file", metavar="FILE", nargs="?", help="deploy file (default: what the run has now)")
    take_sets(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the difference and change nothing")
    take_runs(parser)


def _apply(args: argparse.Namespace) -> int:
    """Change it."""
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
    record = run_folder.read_record(folder)
    if run_folder.owner(folder) is None:
        line = run_folder.to_continue(record, folder)
        raise ConfigError(f"run {folder.name} is not live: go on with  {line}  and --set PATH=VALUE")
    try:
        command(folder, apply.COMMAND, encode(apply.WantedSettings(deploy=deploy, dry_run=args.dry_run)), output.line)
    except ActorGone as error:
        output.news(f"run {folder.name}: {error}")
        return 1
    return 0


def _programme_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="the programme (default: the bundled one)")
    parser.add_argument("--hours", type=float, default=2.5, metavar="H", help="wall time at most (default: 2.5)")
    parser.add_argument("--runs", default="runs/programme", metavar="DIR", help="where its runs are (runs/programme)")


def _programme(args: argparse.Namespace) -> int:
    """Play what is missing of it."""
    from importlib import resources

    from actors.cluster.report import programme
    from runtime.errors import ConfigError

    if not 0 < args.hours < float("inf"):
        raise ConfigError(f"--hours is {args.hours:g}: it is above 0")
    bundled = Path(str(resources.files("deploy"))) / "programme.yaml"
    return programme.carry_out(Path(args.file) if args.file else bundled, Path(args.runs), args.hours)


COMMANDS = {
    "run": (RUN_HELP, _run_arguments, _run),
    "programme": (PROGRAMME_HELP, _programme_arguments, _programme),
    "apply": (APPLY_HELP, _apply_arguments, _apply),
}
