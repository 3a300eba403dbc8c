"""Breaks parts of a real run at random: `make soak ARGS="--minutes 30 --seed 0"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.errors import ConfigError
from tests.soak import show
from tests.soak.soak import SoakOptions

SOAK = (
    "Start a real run, break its parts at random times drawn from the seed, and judge: every fault in the log under its"
    " name within its deadline, processes, descriptors, memory and folders back to the level of minute 2, the ledger's"
    " counts right, nothing left after the stop. Exit status 1 when any of that fails. Needs root."
)


def _soak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="in RL until the stop (30)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of times, kinds and victims (0)")
    apart = "mean seconds between faults (20)"
    parser.add_argument("--every", dest="every_s", type=float, default=20.0, metavar="S", help=apart)
    far = "break machines instead: desktops go to two network namespaces that share a Ray with the run's (make ray)"
    parser.add_argument("--machines", action="store_true", help=far)
    usual = "deploy file (default: soak, with --machines soak-machines)"
    parser.add_argument("--file", metavar="FILE", help=usual)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    parser.add_argument("--out", metavar="DIR", help="write samples and faults as JSON lines, and a picture")


def main(argv: Sequence[str]) -> int:
    """Break and judge; 1 when the verdict is bad."""
    parser = argparse.ArgumentParser(prog="make soak", description=SOAK)
    _soak(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = vars(parser.parse_args(argv))
    as_json, out = args.pop("json"), args.pop("out")
    file = args.pop("file") or ("soak-machines" if args["machines"] else "soak")
    try:
        options = SoakOptions(**args | {"runs": Path(args["runs"]), "file": file})
        return show.run(options, Path(out) if out else None, as_json=as_json)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
