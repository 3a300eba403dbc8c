"""`computerrl reverify`: judge kept end states again."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "judge kept end states again, after a verifier was mended"
DESCRIPTION = (
    "Judge the end states of a run's episodes by the verifiers of today and say which verdicts change. No desktop is\n"
    "booted, and nothing of the run is changed. End states are kept for as long as an episode's steps are.\n"
    "Exit status: 0 every verdict is as recorded, 1 some are others, 2 bad input or nothing to judge."
)
EXAMPLES = "examples:\n  computerrl reverify last\n  computerrl reverify last --family calc --json\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="last", help="a run's name, a path, or `last` (default)"
    )
    parser.add_argument("--family", metavar="NAME", help="only tasks of this family")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Judge again; 0, or 1 where a verdict changes."""
    from actors.cluster.checks.played import reverify
    from actors.cluster.runs import run_folder

    return reverify.show(run_folder.find(Path(args.runs), args.run), args.family, as_json=args.json)
