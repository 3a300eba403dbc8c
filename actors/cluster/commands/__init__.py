"""The commands of `computerrl`, by noun: each module has `COMMANDS`, name -> help, arguments, main.

Importing them costs nothing but the standard library. What a command works with is imported when it runs. Of a command
`_NAME_arguments` declares its arguments; its main, or that of each of its verbs, returns its exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

MODEL = "a folder, a name (base, a run, `last`, OWNER/MODEL of the hub)"
WEB_PORT = 8600


class Help(NamedTuple):
    """What a command prints of itself."""

    summary: str
    description: str
    examples: str


def later(place: str) -> Callable[[argparse.Namespace], int]:
    """The function of arguments at `place`, MODULE:NAME of this package, which is imported when it is called."""

    def main(args: argparse.Namespace) -> int:
        module, name = place.split(":")
        return int(getattr(import_module(f"actors.{module}"), name)(args))

    return main


def of_run(place: str, *flags: str) -> Callable[[argparse.Namespace], int]:
    """The same of a function that takes a run's folder, `as_json`, and `flags` by name."""

    def main(args: argparse.Namespace) -> int:
        from actors.cluster.runs import run_folder

        module, name = place.split(":")
        folder = run_folder.find(Path(args.runs), args.run)
        function = getattr(import_module(f"actors.{module}"), name)
        return int(function(folder, as_json=args.json, **{flag: getattr(args, flag) for flag in flags}))

    return main


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


def take_sets(parser: argparse._ActionsContainer, change: str = "change one key (repeatable)") -> None:
    """Declare the flag that changes a key of a deploy file."""
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE", help=change)


def take_provider(parser: argparse.ArgumentParser) -> None:
    """Declare the flag of commands that boot desktops without a deploy file."""
    take_sets(parser, "change a key of desktops.provider (repeatable; computerrl keys provider)")


def take_served_model(group: argparse._ArgumentGroup) -> None:
    """Declare the flags that name a model at a URL to its server."""
    group.add_argument("--model-name", metavar="NAME", help="the model, as that server calls it")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds its key")
