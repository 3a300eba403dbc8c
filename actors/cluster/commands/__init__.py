"""The commands of `computerrl`, one module each.

Invariant: importing a command costs nothing but the standard library. What a command works with is imported when it
runs. Every module has `SUMMARY`, `DESCRIPTION`, `arguments(parser)` and `main(args) -> exit status`.
"""

from __future__ import annotations

import argparse

MODEL = "a folder, a name (base, a run, `last`, OWNER/MODEL of the hub)"


def take_served_model(group: argparse._ArgumentGroup) -> None:
    """Declare the flags that name a model at a URL to its server."""
    group.add_argument("--model-name", metavar="NAME", help="the model, as that server calls it")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds its key")


def take_provider(parser: argparse.ArgumentParser) -> None:
    """Declare the flag of commands that boot desktops without a deploy file."""
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
        help="change a key of desktops.provider (repeatable; computerrl keys provider)",
    )  # fmt: skip
