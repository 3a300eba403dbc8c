"""`computerrl audit`: whether a run's ledger adds up and its payloads can be read."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "prove that a run's ledger adds up and its payloads can be read"
DESCRIPTION = (
    "Go through a run's ledger and payloads, live or ended, and change nothing. Every group has to end once. Counts\n"
    "have to equal rows. Phases and versions have to come in order. No group may be trained staler than the bound.\n"
    "Every payload that is still needed has to be what its digest says.\n"
    "Exit status 1 when something is wrong; each wrong thing is named."
)
EXAMPLES = "examples:\n  computerrl audit last\n  computerrl audit smoke-20260101-120000 --json\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="last", help="a run's name, a path, or `last` (default)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Check and say it; 1 when anything is wrong."""
    from actors.cluster.runs import run_folder
    from actors.cluster.views import runs

    return runs.show_audit(run_folder.find(Path(args.runs), args.run), as_json=args.json)
