"""The extensions that the editor holds for this user, from its own list in HOME.

Invariant: only reads, and no more than `MOST_BYTES` of a file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from guest.code.start import EXTENSIONS
from guest.paths import wrong

MOST_BYTES = 1 << 20


class Installed(NamedTuple):
    """One extension."""

    id: str
    version: str
    categories: tuple[str, ...]
    pre_release: bool


def folder() -> Path:
    """Where they lie."""
    return Path(os.environ["HOME"], EXTENSIONS)


def installed() -> list[Installed]:
    """All of them by id. Raises Refused where the list can't be read."""
    try:
        rows = _json(folder() / "extensions.json")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise wrong(f"the editor's list of extensions can't be read: {type(error).__name__}") from error
    found = []
    for row in rows if isinstance(rows, list) else []:
        try:
            about = _json(folder() / str(row["relativeLocation"]).rpartition("/")[2] / "package.json")
            found.append(
                Installed(
                    str(row["identifier"]["id"]).lower(), str(row["version"]),
                    tuple(map(str, about.get("categories", []))), about.get("preview") is True,
                )
            )  # fmt: skip
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue  # one that is just going, or was never whole
    return sorted(found)


def _json(place: Path) -> Any:
    with place.open("rb") as file:
        return json.loads(file.read(MOST_BYTES))
