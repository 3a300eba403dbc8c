"""The folders of applications: each folder here that has a module `app` is an application.

Invariant: lists of applications have the order below. An application that the order does not name comes last, and those
of other packages come after it: their entry point names a package with the same modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from apis import entries
from apis.discovery import folders

GUEST = Path(__file__).resolve().parents[1] / "guest"
NEEDED = "app"  # the module that each application has
ORDER = ("text_editor", "file_manager", "terminal", "calc", "writer", "impress", "vlc", "code", "chromium")


def parts(part: str) -> Iterator[tuple[str, ModuleType]]:
    """The modules called `part`, each with the name of its application's folder."""
    yield from folders(sys.modules[__package__], part, ORDER)
    for one in entries.brought(entries.APPLICATIONS):
        name = _package(one).__name__
        if part == NEEDED or find_spec(f"{name}.{part}"):
            yield one.name, one.module(f"{name}.{part}")


def guest_folders() -> Iterator[tuple[str, Path]]:
    """The folders of other packages' applications that belong into `guest` on a desktop, each with its name there.

    Raises ConfigError for a name that is taken there.
    """
    for one in entries.brought(entries.APPLICATIONS):
        place = Path(_package(one).__path__[0]) / "guest"
        if place.is_dir():
            if (GUEST / one.name).exists() or not one.name.isidentifier():
                one.refuse(f"guest.{one.name} is taken, or can't be a package's name: name the entry point otherwise")
            yield one.name, place


def _package(one: entries.Brought) -> ModuleType:
    found = one.load()
    if not isinstance(found, ModuleType) or not hasattr(found, "__path__"):
        one.refuse(f"it is no package with a module `{NEEDED}`")
    return found
