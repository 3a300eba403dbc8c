"""What a build knows of an application: how it is driven, what generated code may import, how effects are read.

A profile is a YAML file, `profiles/APP.yaml` or one that the user names. Its snippets are the author's own code. They
run in the desktop like generated functions, and see the same object `app`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from apis.built import Helpers, Module, Owner, Sentence
from runtime.errors import ConfigError

BUNDLED = Path(__file__).with_name("profiles")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One application, as a build drives it."""

    app: str  # as in apis.applications
    owner: Owner  # class of the functions that are built
    title: Sentence  # by which a model knows the application
    facts: str  # for the model: what `app` offers, and what to beware of
    example: str  # for the model: a function as it should be written
    helpers: Helpers = ""  # module of the guest with the class `App`, and the text that it is made with
    imports: list[Module] = []  # modules that generated code may import
    files: dict[str, dict[str, Any]] = {}  # as in a table of cases
    opens: list[str] = []  # words after the application's own command
    window: str = ""  # part of the window's title
    reads: dict[str, str] = {}  # name of what an effect reads -> an expression of `app` that gives a text
    puts: dict[str, str] = {}  # name of what a case prepares -> a statement of `app` and `value`
    saves: str = ""  # a statement that saves the document, after which files are read


def bundled() -> list[str]:
    """Applications whose profiles the package brings."""
    return sorted(file.stem for file in BUNDLED.glob("*.yaml"))


def load(file: Path) -> Profile:
    """The profile in a file. Raises ConfigError."""
    try:
        return msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Profile)
    except (OSError, msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error
