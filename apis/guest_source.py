"""The guest's program: the files that every desktop is given, those of other packages' applications among them."""

from __future__ import annotations

from pathlib import Path

from apis import built
from apis.apps.application import GUEST, folders_brought

_LEFT_OUT = {".md", ".pyc"}


def files() -> dict[str, Path]:
    """Path below `guest` on a desktop -> the file here. Raises ConfigError for an application that can't be used."""
    places = [("", GUEST), *((f"{name}/", place) for name, place in folders_brought("guest"))]
    own = {
        f"{prefix}{path.relative_to(place)}": path
        for prefix, place in places
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.suffix not in _LEFT_OUT
    }
    return own | built.guest_files()
