"""`computerrl logs`: what a run's actors wrote."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "read a run's logs"
DESCRIPTION = "Print the structured logs of all actors of a run in time order. RUN is a run's name, a path, or `last`."
EXAMPLES = (
    "examples:\n"
    "  computerrl logs last -f\n"
    "  computerrl logs last --actor desktop/3 --level warning\n"
    "  computerrl logs last --trace g12.3             one episode through every actor\n"
    "  computerrl logs last --event learner_step --json\n"
)
LEVELS = ("debug", "info", "warning", "error")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("run", metavar="RUN", help="a run's name, a path, or `last`")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines are written, until the run ends")
    parser.add_argument("--actor", metavar="NAME", help="only this actor, e.g. desktop/3; `desktop` is all of a kind")
    parser.add_argument("--event", metavar="NAME", help="only this event")
    parser.add_argument("--trace", metavar="ID", help="only this episode")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="this level and above")
    parser.add_argument("--json", action="store_true", help="print the lines as they are stored, one JSON each")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Print them; 0, or 2 when there is no such run, actor or event."""
    from actors.cluster.runs import run_folder
    from actors.cluster.views import runs

    return runs.show_logs(
        run_folder.find(Path(args.runs), args.run),
        follow=args.follow,
        as_json=args.json,
        actor=args.actor,
        event=args.event,
        trace=args.trace,
        level=args.level,
    )
