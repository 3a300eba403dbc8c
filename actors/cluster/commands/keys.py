"""`computerrl keys`: what a deploy file may say."""

from __future__ import annotations

import argparse

SUMMARY = "list the keys of deploy files"
DESCRIPTION = (
    "Print the keys of a deploy file that most users need, each with its default, its type and what it does.\n"
    "--all prints every key. With WORD, print every key that has it in its name or meaning. `list[].key` stands in\n"
    "every entry of a list. --schema prints the JSON schema of deploy files: editors complete and check files by it."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl keys\n"
    "  computerrl keys learner.\n"
    "  computerrl keys staleness\n"
    "  computerrl keys --all\n"
    "  computerrl keys --schema > deploy.schema.json\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("word", metavar="WORD", nargs="?", help="a part of a key's name or meaning")
    parser.add_argument("--all", action="store_true", help="print every key")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of deploy files")


def main(args: argparse.Namespace) -> int:
    """Print them; 0."""
    from actors.cluster import output
    from actors.cluster.config import keys
    from actors.cluster.config.suggest import nearest
    from runtime.errors import ConfigError

    if args.schema:
        if args.word or args.all:
            args.parser.error("--schema is of all keys: leave WORD and --all out")
        output.document(keys.schema())
        return 0
    known = keys.of_deploy()
    found = keys.matching(args.word, known) if args.word else known if args.all else keys.usual(known)
    if not found:
        near = nearest(args.word, list(dict.fromkeys(one.key for one in known)))
        what = f"did you mean {near}?" if near else "--all lists them all"
        raise ConfigError(f"{args.word}: no key has it in its name or meaning; {what}")
    if args.json:
        output.document(found)
        return 0
    for one in found:
        output.line(keys.told(one, min(108, output.columns())))
    if not args.word and not args.all:
        output.line(f"\n{len(known) - len(found)} more with --all")
    return 0
