"""`computerrl report`: what a run achieved."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "say what runs achieved, with a page, curves and whole episodes"
DESCRIPTION = (
    "Print runs' evaluation rounds, gains, phases, group endings and overlap. Print how seats\n"
    "spent their time and which part used the processor. A seat is busy from a granted reservation to its\n"
    "verification; idle time is told by cause.\n"
    "Write one self-contained page, report.html, with curves, causes of phase changes and whole episodes, and the\n"
    "curve of success as a PNG. --text writes nothing; --json writes only where --out is given.\n"
    "Runs of one deploy file that differ in the seed become a mean and a band. The name of an experiment stands for\n"
    "its runs.\n"
    "RUN.figures.gz, beside the page, holds a run's figures without its episodes and may stand for the run. So seeds\n"
    "that were played on several machines can be shown together.\n"
    "Exit status: 0, 1 when a run that was to be evaluated played no round, 2 bad input."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl report last\n"
    "  computerrl report last --text                          no page, no curves\n"
    "  computerrl report local-0 local-1 local-2 --out seeds/    three seeds as mean and band\n"
    "  computerrl report report/local-0 local-1                one of them from its figures alone\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    named = "a run's or an experiment's name, a path, a file of figures, or `last`"
    parser.add_argument("run", metavar="RUN", nargs="*", default=["last"], help=named)
    files = "for report.html, curve.png and RUN.figures.gz (default: report/RUN)"
    parser.add_argument("--out", metavar="DIR", help=files)
    parser.add_argument("--text", action="store_true", help="print only")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Print it; 1 when a run that was to be evaluated played no round."""
    from actors.cluster import paths as places
    from actors.cluster.report import show
    from runtime.errors import ConfigError

    if args.text and args.out is not None:
        raise ConfigError("--text prints only: leave --out out, or --text")
    paths = [path for name in args.run for path in show.paths_of(name, Path(args.runs))]
    out = None if args.out is None else Path(args.out)
    paths = list(dict.fromkeys(paths))
    if out is None and not args.text and not args.json:
        out = Path("report", show.called(paths))
        try:
            places.refuse_unwritable(out, "the folder")
        except ConfigError as error:
            raise ConfigError(f"{error}; --out names another for the page, --text prints only") from None
    return show.show(paths, out, as_json=args.json)
