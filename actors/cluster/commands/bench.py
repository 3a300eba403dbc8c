"""`computerrl bench startup`: how long until the first optimizer step of RL."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "measure"
DESCRIPTION = "Measure on this machine."
EXAMPLES = "examples:\n  computerrl bench startup\n  computerrl bench startup --file local --json\n"
STARTUP = "Run a deploy file and print the seconds from the command to the first optimizer step of RL, by part."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    startup = kinds.add_parser("startup", help="command to first RL step", description=STARTUP, epilog=EXAMPLES)
    startup.add_argument("--file", default="smoke", metavar="FILE", help="deploy file (default: smoke)")
    startup.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    startup.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    startup.add_argument("--json", action="store_true", help="print one JSON document")
    startup.set_defaults(parser=startup)


def main(args: argparse.Namespace) -> int:
    """Run it and print the parts; 1 when there was no such step."""
    from actors.cluster import startup

    return startup.measure(args.file, args.overrides, Path(args.runs), as_json=args.json)
