"""The commands of `computerrl`, by noun: each module has `COMMANDS`, name -> help, arguments, main.

Importing them costs nothing but the standard library. What a command works with is imported when it runs. Of a command
`_NAME_arguments` declares its arguments, and `_NAME` returns its exit status.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

MODEL = "a folder, a name (base, a run, `last`, OWNER/MODEL of the hub)"
WEB_PORT = 8600


class Help(NamedTuple):
    """What a command prints of itself."""

    summary: str
    description: str
    examples: str


def take_run(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Declare the name of a run, which may be left out where there is a `default`."""
    named = "a run's name, a path, or `last`"
    if default is None:
        parser.add_argument("run", metavar="RUN", help=named)
    else:
        parser.add_argument("run", metavar="RUN", nargs="?", default=default, help=f"{named} (default)")


def take_runs(parser: argparse._ActionsContainer) -> None:
    """Declare the flag that names the folder of runs."""
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def take_json(parser: argparse._ActionsContainer) -> None:
    """Declare the flag that prints for programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def take_sets(parser: argparse._ActionsContainer) -> None:
    """Declare the flag that changes a key of a deploy file."""
    change = "change one key (repeatable)"
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE", help=change)


def take_provider(parser: argparse.ArgumentParser) -> None:
    """Declare the flag of commands that boot desktops without a deploy file."""
    change = "change a key of desktops.provider (repeatable; computerrl keys provider)"
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE", help=change)


def take_served_model(group: argparse._ArgumentGroup) -> None:
    """Declare the flags that name a model at a URL to its server."""
    group.add_argument("--model-name", metavar="NAME", help="the model, as that server calls it")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds its key")
