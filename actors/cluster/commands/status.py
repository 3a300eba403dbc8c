"""`computerrl status`: what a run is doing now."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "say what each actor of a run is doing now"
DESCRIPTION = "Ask a live run what each of its actors is doing; of an ended run, say how it ended."
EXAMPLES = "examples:\n  computerrl status last\n  computerrl status smoke-20260101-120000 --json\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="last", help="a run's name, a path, or `last` (default)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Say it; 0 for a live or well ended run, 1 for one that failed, crashed or was killed."""
    from actors.cluster.runs import run_folder
    from actors.cluster.views import runs

    return runs.show_status(run_folder.find(Path(args.runs), args.run), as_json=args.json)
