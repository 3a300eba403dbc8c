"""`computerrl keys`: what a deploy file may say."""

from __future__ import annotations

import argparse

SUMMARY = "list the keys of deploy files"
DESCRIPTION = (
    "Print every key of a deploy file with its default, its type and what it means; with WORD those that have it in\n"
    "their name or meaning. A key marked expert's also needs `--set run.expert=true`. `list[].key` stands in every\n"
    "entry of a list. Files with `arms:` and `seeds:` are several runs (deploy/ablation-entropulse.yaml is one)."
)
EXAMPLES = "examples:\n  computerrl keys\n  computerrl keys learner.\n  computerrl keys staleness\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("word", metavar="WORD", nargs="?", help="a part of a key's name or meaning")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
    """Print them; 0."""
    from actors.cluster import output
    from actors.cluster.config import keys
    from actors.cluster.config.suggest import nearest
    from runtime.errors import ConfigError

    known = keys.of_deploy()
    found = keys.matching(args.word or "", known)
    if not found:
        near = nearest(args.word, list(dict.fromkeys(one.key for one in known)))
        what = f"did you mean {near}?" if near else "all are listed without a word"
        raise ConfigError(f"{args.word}: no key has it in its name or meaning; {what}")
    if args.json:
        output.document(found)
        return 0
    for one in found:
        output.line(keys.told(one))
    return 0
