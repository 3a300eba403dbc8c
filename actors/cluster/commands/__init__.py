"""The commands of `computerrl`, by noun: each module has `COMMANDS`, name -> help, arguments, main.

Importing them costs nothing but the standard library. What a command works with is imported when it runs. Of a command
`_NAME_arguments` declares its arguments; its main, or that of each of its verbs, returns its exit status.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from runtime.errors import ConfigError

MODEL = "a folder, a name (base, a run, `last`, OWNER/MODEL of the hub)"
SUITE = "suite, YAML file, family, or JSON file or folder of tasks"
WEB_PORT = 8600
_EACH: dict[str, Any] = {"action": "append", "default": []}
_NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}
_ACTIONS = "actions that agent and oracles have: api lacks mouse and keyboard, gui the functions"
_NOISE = "let oracles take harmless wrong steps this often (without SHARE: 0.15)"
# Flags that several commands take, each with the same meaning.
FLAGS: dict[str, dict[str, Any]] = {
    "json": {"action": "store_true", "help": "print one JSON document"},
    "runs": {"default": "runs", "metavar": "DIR", "help": "where run folders are (default: runs)"},
    "name": {"metavar": "NAME", "help": "name of the run (default: the command's or the file's, and the time)"},
    "set": {**_EACH, "dest": "overrides", "metavar": "PATH=VALUE", "help": "change one key (repeatable)"},
    "family": {**_EACH, "metavar": "F", "help": "only this family (repeatable)"},
    "actions": {"choices": ("both", "gui", "api"), "help": _ACTIONS},
    "format": {"choices": ("compact", "published"), "help": "of prompts and answers"},
    "split": {"choices": ("train", "held-out"), "help": "which instances"},
    "noise": {"type": float, "nargs": "?", "const": 0.15, "metavar": "SHARE", "help": _NOISE},
    "instances": {**_NUMBER, "help": "per family and split"},
    "first": {**_NUMBER, "help": "number of each family's first instance"},
    "count": {**_NUMBER, "help": "tasks of each family"},
    "desktops": {**_NUMBER, "help": "desktops at the same time"},
    "seed": {**_NUMBER, "help": "of the run (default: 0)"},
    "max-turns": {**_NUMBER, "help": "answers per episode"},
    "max-tokens": {**_NUMBER, "help": "of one answer"},
    "port": {**_NUMBER, "help": "port; 0 for any free one"},
    "at": {"metavar": "POINT", "help": "of a run: newest (default), a round's name, or a version"},
    "screen": {"metavar": "WxH", "help": "the desktops' screen in pixels"},
    "model-name": {"metavar": "NAME", "help": "the model, as the server at a URL calls it"},
    "api-key-env": {"metavar": "VAR", "help": "the environment variable that holds the server's key"},
}


class Help(NamedTuple):
    """What a command prints of itself."""

    summary: str
    description: str
    examples: str


def take(parser: argparse._ActionsContainer, *names: str, **defaults: Any) -> None:
    """Declare shared flags, those of `defaults` with a default that their help names."""
    for name in (*names, *(name.replace("_", "-") for name in defaults)):
        options = FLAGS[name]
        if (default := defaults.get(name.replace("-", "_"))) is not None:
            options = options | {"default": default, "help": f"{options['help']} (default: {default})"}
        parser.add_argument(f"--{name}", **options)


def flag(parser: argparse._ActionsContainer, name: str, metavar: str, text: str, **options: Any) -> None:
    """Declare a flag of one command that takes a word, or with an `action` none."""
    if metavar:
        options["metavar"] = metavar
    parser.add_argument(name, help=text, **options)


def take_run(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Declare the name of a run, which may be left out where there is a `default`."""
    named = "a run's name, a path, or `last`" + (f" (default: {default})" if default else "")
    parser.add_argument("run", metavar="RUN", help=named, nargs="?" if default else None, default=default)


def take_provider(parser: argparse.ArgumentParser) -> None:
    """Declare the flag of commands that boot desktops without a deploy file."""
    changed = "change a key of desktops.provider (repeatable; computerrl keys provider)"
    parser.add_argument("--set", **(FLAGS["set"] | {"help": changed}))


def verb(verbs: Any, name: str, texts: Help, place: str = "") -> argparse.ArgumentParser:
    """Declare a verb, whose function is at `place` or is the command's."""
    about = {"help": texts.summary, "description": texts.description, "epilog": texts.examples}
    parser: argparse.ArgumentParser = verbs.add_parser(name, **about)
    parser.set_defaults(parser=parser, **({"main": later(place)} if place else {}))
    return parser


def flag_of(name: str) -> str:
    """The flag whose value the arguments hold as `name`."""
    return {"overrides": "--set", "fork": "--from"}.get(name, f"--{name.replace('_', '-')}")


def refuse_given(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise ConfigError for the first of `names` that was given and would be passed over."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise ConfigError(f"{flag_of(name)}: {why}: leave it out")


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
        return int(function(folder, as_json=args.json, **{name: getattr(args, name) for name in flags}))

    return main
