"""`computerrl base build`: make the base model from data."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "build the base model"
DESCRIPTION = (
    "Make the small base model that runs start from: corpus, initialisation, pre-training. Deterministic by seed."
)
EXAMPLES = "examples:\n  computerrl base build --out base-model --steps 1200\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    build = verbs.add_parser("build", help="build it", description=DESCRIPTION, epilog=EXAMPLES)
    build.add_argument("--out", required=True, metavar="DIR", help="folder to make")
    build.add_argument("--steps", type=int, metavar="N", help="optimizer steps (default: the recipe's)")
    build.add_argument("--seed", type=int, default=0, metavar="N")
    build.set_defaults(parser=build)


def main(args: argparse.Namespace) -> int:
    """Build it; 0."""
    from actors.cluster import output
    from actors.cluster import paths as places
    from runtime.errors import ConfigError

    if args.steps is not None and args.steps < 1:
        raise ConfigError(f"--steps {args.steps}: it counts from 1")
    out = Path(args.out).absolute()
    if out.exists():
        raise ConfigError(f"--out {args.out} exists already: name a new folder")
    places.refuse_unwritable(out, "--out")
    from policy.base.build import Recipe, build

    given = {"seed": args.seed} | ({"steps": args.steps} if args.steps is not None else {})
    build(out, Recipe(**given), lambda figures: output.line(_shown(figures)))
    output.line(f"base model: {args.out}")
    return 0


def _shown(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
