"""`computerrl export`: a run's weights for others to serve."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.cluster.commands import MODEL

SUMMARY = "write a run's weights as a Hugging Face folder"
DESCRIPTION = (
    "Write weights to a new folder in Hugging Face's layout: weights, configuration, tokenizer and a model card. The\n"
    "card says what was measured. Print the lines that serve it with SGLang and with the embedded engine.\n"
    "MODEL is a run, `last`, `base`, a folder or a name on the hub. --at chooses among a run's weights. It is\n"
    "`newest` (default), the name of an evaluation round (after_bc, final), or a version (0.240)."
)
EXAMPLES = "examples:\n  computerrl export last model/\n  computerrl export last cloned/ --at after_bc --json\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument("folder", metavar="DIR", help="folder to write; it must not exist")
    parser.add_argument("--at", metavar="POINT", help="newest, a round's name, or a version")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Write it; 0."""
    from actors.cluster.runs import export as exporting
    from actors.cluster.runs import weights

    return exporting.export(
        weights.locate(args.model, Path(args.runs), args.at or ""), Path(args.folder), as_json=args.json
    )
