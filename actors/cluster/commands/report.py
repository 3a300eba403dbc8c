"""`computerrl report`: what a run achieved."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "say what a run achieved, with a curve and a picture"
DESCRIPTION = (
    "Print a run's evaluation rounds, phases, group endings and overlap, how its seats spent their time (busy from a"
    " granted reservation to its verification, idle by cause) and which part used the processor; with --out also draw"
    " them."
)
EXAMPLES = "examples:\n  computerrl report last\n  computerrl report last --out report/\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("run", metavar="RUN", nargs="?", default="last", help="a run's name, a path, or `last`")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write curve.png, seats.png and desktop.jpg there")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Print it; 1 when no evaluation round was played."""
    from actors.cluster import runfolder
    from actors.cluster.report import show

    return show.show(runfolder.find(Path(args.runs), args.run), args.out, as_json=args.json)
