"""`computerrl apply`: change a live run."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "change a live run: more or fewer desktops, processes, samplers"
DESCRIPTION = (
    "Make a live run what FILE says. Prints the difference: + begins, - ends, ~ changes. Desktops, their processes,\n"
    "samplers, evaluation and limits change while the run goes on; seats that leave end their episodes first.\n"
    "Another key is refused with what to do. Without FILE, the run's own settings are taken, with --set over them.\n"
    "What holds then is in the run's folder, and a later --resume goes on with it.\n"
    "Exit status: 0 done, or nothing to do; 1 the run ended meanwhile; 2 refused."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl apply last mine.yaml --dry-run\n"
    "  computerrl apply last --set desktops.count=8 --set desktops.processes=2\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("run", metavar="RUN", help="a run's name, a path, or `last`")
    parser.add_argument("file", metavar="FILE", nargs="?", help="deploy file (default: what the run has now)")
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE", help="change one key (repeatable)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the difference and change nothing")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
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
