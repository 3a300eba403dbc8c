"""What a build knows of an application: how it is driven, what generated code may import, how effects are read.

A profile is a YAML file, `profiles/APP.yaml` or one that the user names. Its snippets are the author's own code. They
run in the desktop like generated functions, and see the same object `app`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from apis.applications import APP_NAMES, bring_built
from apis.built import Argv, Helpers, Module, Name, Owner, Sentence, WindowClass
from runtime.errors import ConfigError

BUNDLED = Path(__file__).with_name("profiles")


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One application, as a build drives it."""

    app: Name  # as in apis.applications
    owner: Owner  # class of the functions that are built
    title: Sentence  # by which a model knows the application
    facts: str  # for the model: what `app` offers, and what to beware of
    example: str  # for the model: a function as it should be written
    argv: Argv = []  # of an application that is not in apis.applications: what starts it,
    windows: list[WindowClass] = []  # and the classes of its windows, in small letters
    helpers: Helpers = ""  # module of the guest with the class `App`, and the text that it is made with
    imports: list[Module] = []  # modules that generated code may import
    files: dict[str, dict[str, Any]] = {}  # as in a table of cases
    opens: list[str] = []  # words after the application's own command
    window: str = ""  # part of the window's title
    # What an effect reads -> an expression of `app` that gives a text, or lines of which one returns it.
    reads: dict[str, str] = {}
    puts: dict[str, str] = {}  # name of what a case prepares -> statements of `app` and `value`
    means: dict[str, str] = {}  # for the model: what a name of `reads` or `puts` gives or takes
    saves: str = ""  # statements that save the document, after which files are read


def bundled() -> list[str]:
    """Applications whose profiles the package brings."""
    return sorted(file.stem for file in BUNDLED.glob("*.yaml"))


def load(file: Path) -> Profile:
    """The profile in a file. Raises ConfigError."""
    try:
        made = msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Profile)
    except (OSError, msgspec.ValidationError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error
    bring_built(made.app, made.argv, made.windows)
    if made.app not in APP_NAMES:
        raise ConfigError(f"{file}: app {made.app}: none of {', '.join(APP_NAMES)}; another has argv and windows here")
    return made
