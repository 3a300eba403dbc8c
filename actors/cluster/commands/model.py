"""`computerrl model check`: whether a model folder is computed here as transformers does."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.cluster.commands import MODEL

SUMMARY = "check a model folder beside transformers"
DESCRIPTION = (
    "Load MODEL as learner and embedded engine do, compare logits with\n"
    "transformers, draw a greedy answer through the model's own chat template, export the weights and read them back.\n"
    "float32: a logit may differ by 1e-4, or by 1e-5 of the largest logit. bfloat16: the rms distance from float32\n"
    "may be at most 1.5 times that of transformers' own bfloat16. A model that is not covered is named by its key of\n"
    "config.json.\n"
    "Exit status 1 where something is wrong. Memory: the model twice."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl model check models/smollm2\n"
    "  computerrl model check Qwen/Qwen2.5-0.5B@main\n"
    "  computerrl model check ~/Qwen3-1.7B --dtype bfloat16 --json\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="compare with transformers", description=DESCRIPTION, epilog=EXAMPLES)
    check.add_argument("model", metavar="MODEL", help=MODEL)
    check.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="what to compute in (default: float32)"
    )
    check.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    check.add_argument("--json", action="store_true", help="print one JSON document")
    check.set_defaults(parser=check)


def main(args: argparse.Namespace) -> int:
    """Check it; 0 where all is good, else 1."""
    import warnings

    warnings.simplefilter("ignore")  # Megatron's, of kernels that it lacks
    from actors.cluster.checks import model

    return model.check(args.model, Path(args.runs), args.dtype, as_json=args.json)
