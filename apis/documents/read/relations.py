"""The relations of an Office Open XML package (ECMA-376 part 2): which part a name stands for.

Invariant: a relation names a part of the package. A target outside of the package is no relation.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from apis.documents.read.markup import MarkupHandler


class Relations(MarkupHandler):
    """Which part a relation's name stands for."""

    def __init__(self, part: str) -> None:
        self._folder = posixpath.dirname(part)
        self.parts: dict[str, tuple[str, str]] = {}  # name -> (the last word of its kind, part)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            path = posixpath.normpath(posixpath.join("/", self._folder, target)).lstrip("/")
            self.parts[attributes.get("Id", "")] = (attributes.get("Type", "").rpartition("/")[2], path)

    def of_kind(self, kind: str) -> str | None:
        """The first part of a kind."""
        return next((path for found, path in self.parts.values() if found == kind), None)


def related(part: str, parse: Callable[[str, MarkupHandler], None]) -> Relations:
    """The relations of `part`, "" for those of the package; `parse` reads a part by events. Raises RefusedError."""
    found = Relations(part)
    folder, name = posixpath.split(part)
    parse(posixpath.join(folder, "_rels", f"{name}.rels"), found)
    return found
