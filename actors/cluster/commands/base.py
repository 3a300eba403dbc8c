"""`computerrl base build`: make the base model from data."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "build the base model"
DESCRIPTION = "Make the small base model that runs start from: corpus, initialisation, pre-training. Deterministic by seed."
EXAMPLES = "examples:\n  computerrl base build --out base-model --seconds 300\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    build = verbs.add_parser("build", help="build it", description=DESCRIPTION, epilog=EXAMPLES)
    build.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    build.add_argument("--seconds", type=float, default=300.0, metavar="S", help="training time (default: 300)")
    build.add_argument("--seed", type=int, default=0, metavar="N")
    build.set_defaults(parser=build)


def main(args: argparse.Namespace) -> int:
    """Build it; 0."""
    from actors.cluster import say
    from policy.base.build import build

    build(args.out, seconds=args.seconds, seed=args.seed)
    say.line(f"base model: {args.out}")
    return 0
