"""The command line as data: `commands.toml` has each command's help, its arguments and the function it calls.

What a command works with is imported when it runs, so `computerrl --help` is quick.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from runtime.errors import ConfigError

_TABLE = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
_FLAGS: dict[str, dict[str, Any]] = _TABLE["flags"]
_WORDS: dict[str, str] = _TABLE["words"]
COMMANDS: dict[str, dict[str, Any]] = _TABLE["commands"]


def declare(parsers: Any, commands: Mapping[str, dict[str, Any]], examples: str = "") -> None:
    """Declare `commands` as subparsers; verbs show those of their command's `examples` that are theirs."""
    for name, of in commands.items():
        shown = "examples:\n" + of["examples"].strip("\n") + "\n" if "examples" in of else examples
        parser = parsers.add_parser(
            name,
            help=of["summary"],
            description=of["description"].lstrip("\n"),
            epilog=shown,
            usage=of.get("usage", "").lstrip("\n") or None,
        )
        parser.set_defaults(parser=parser)
        if "main" in of:
            parser.set_defaults(main=_later(of["main"], of.get("takes")))
        _take(parser, of.get("arguments", ()))
        for group in of.get("groups", ()):
            _take(parser.add_argument_group(group["title"]), group["arguments"])
        if "verbs" in of:
            declare(parser.add_subparsers(dest="verb", metavar="VERB", required=True), of["verbs"], shown)


def _take(parser: argparse._ActionsContainer, arguments: Sequence[str | dict[str, Any]]) -> None:
    exclusive: dict[str, argparse._ActionsContainer] = {}
    for entry in arguments:
        options = _shared(entry) if isinstance(entry, str) else dict(entry)
        names, at = options.pop("name").split(), parser
        if (only := options.pop("exclusive", None)) is not None:
            at = exclusive.get(only) or exclusive.setdefault(only, parser.add_mutually_exclusive_group())
        if "type" in options:
            options["type"] = {"int": int, "float": float, "port": _port}[options["type"]]
        bounds = options.pop("least", None), options.pop("most", None)
        options.setdefault("help", argparse.SUPPRESS)
        for word, text in _WORDS.items():
            if f"{{{word}}}" in options["help"]:
                options["help"] = options["help"].replace(f"{{{word}}}", text)
        action: Any = at.add_argument(*names, **options)
        action.bounds = bounds  # which `cli` looks at


def _shared(entry: str) -> dict[str, Any]:
    """A flag of `flags`, or the RUN; `NAME=DEFAULT` gives it a default that its help names."""
    name, _, given = entry.partition("=")
    if name == "RUN":
        text = "a run's name, a path, or `last`" + (f" (default: {given})" if given else "")
        return {"name": "run", "metavar": "RUN", "help": text} | ({"nargs": "?", "default": given} if given else {})
    options = {"name": f"--{name}"} | _FLAGS[name]
    if given:
        default = int(given) if options.get("type") == "int" else given
        options |= {"default": default, "help": f"{options['help']} (default: {default})"}
    return options


def _port(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word} is no port; where it is FILE, put it before --web") from None


def _later(place: str, takes: Sequence[str] | None) -> Callable[[argparse.Namespace], int]:
    """The function at `place`, MODULE:NAME of `actors`, of all arguments; with `takes` of a run's folder and those."""

    def main(args: argparse.Namespace) -> int:
        module, name = place.split(":")
        if takes is None:
            return int(getattr(import_module(f"actors.{module}"), name)(args))
        from actors.cluster.runs import run_folder

        folder = run_folder.find(Path(args.runs), args.run)
        function = getattr(import_module(f"actors.{module}"), name)
        return int(function(folder, as_json=args.json, **{name: getattr(args, name) for name in takes}))

    return main


def flag_of(name: str) -> str:
    """The flag whose value the arguments hold as `name`."""
    return {"overrides": "--set", "fork": "--from"}.get(name, f"--{name.replace('_', '-')}")


def refuse_given(args: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise ConfigError for the first of `names` that was given and would be passed over."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise ConfigError(f"{flag_of(name)}: {why}: leave it out")
