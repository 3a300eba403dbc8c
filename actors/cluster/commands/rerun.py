"""`computerrl rerun`: play recorded actions again."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.cluster.commands import take_provider

SUMMARY = "play a recorded episode again on a fresh desktop"
DESCRIPTION = (
    "Give the recorded answers of an episode again, on a fresh desktop, and compare what comes of them: each\n"
    "observation, action and result, and the verdict.\n"
    "Exit status: 0 all came as recorded, 1 something did not or a fault broke it, 2 bad input."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl rerun last g12.3\n"
    "  computerrl rerun last eval.final.4 --json\n"
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("run", metavar="RUN", help="a run's name, a path, or `last`")
    parser.add_argument("episode", metavar="EPISODE", help="its trace, as `episodes` and `logs` name it, or its token")
    take_provider(parser)
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Play it again; 0, or 1 where it came otherwise."""
    from actors.cluster.checks.played import rerun
    from actors.cluster.runs import run_folder

    return rerun.show(run_folder.find(Path(args.runs), args.run), args.episode, args.overrides, as_json=args.json)
