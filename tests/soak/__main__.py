"""Breaks parts of a real run at random: `make soak ARGS="--minutes 30 --seed 0"`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from actors.cluster import output
from actors.cluster import paths as places
from runtime.errors import ConfigError
from tests.soak.soak import Soak, SoakOptions

SOAK = (
    "Start a real run, break its parts at random times drawn from the seed, and judge: every fault in the log under its"
    " name within its deadline, processes, descriptors, memory and folders back to the level of minute 2, the ledger's"
    " counts right, nothing left after the stop. Prints JSON. Exit status 1 when any of that fails. Needs root."
)


def run(wanted: SoakOptions) -> int:
    """Soak and print; 1 when the verdict is bad, 130 when a signal ended it. Raises ConfigError."""
    places.refuse_unwritable(wanted.runs, "--runs")
    try:
        result = asyncio.run(Soak(wanted, _progress).go())
    except asyncio.CancelledError:
        _progress("interrupted: no verdict; the run has ended")
        return 130
    output.document(result)
    for reason in result.reasons:
        _progress(f"BAD  {reason}")
    _progress(f"verdict {'bad' if result.reasons else 'good'}")
    return 1 if result.reasons else 0


def _progress(text: str) -> None:
    output.line(f"  {text}", to=sys.stderr)


def main(argv: Sequence[str]) -> int:
    """Break and judge; 1 when the verdict is bad."""
    parser = argparse.ArgumentParser(prog="make soak", description=SOAK)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="in RL until the stop (30)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of times, kinds and victims (0)")
    apart = "mean seconds between faults (20)"
    parser.add_argument("--every", dest="every_s", type=float, default=20.0, metavar="S", help=apart)
    parser.add_argument("--file", default="soak", metavar="FILE", help="deploy file (default: soak)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where the run folder goes")
    try:
        return run(SoakOptions(**vars(parser.parse_args(argv))))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
