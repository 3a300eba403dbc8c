"""A small part of an archive as a tree of elements, within bounds.

Invariant: what is kept is counted against the budget while it is found.
"""

from __future__ import annotations

from collections.abc import Iterator

from apis.documents.read.bounds import Budget
from apis.documents.read.markup import MarkupHandler


class PartElement:
    """An element: its name without a prefix, attributes likewise, the elements in it, its own text in front of
    them, and `tail`, the text behind it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.inside: list[PartElement] = []
        self.text = ""
        self.tail = ""

    def all(self, *path: str) -> Iterator[PartElement]:
        """Elements at `path` below this one, each step a child's name."""
        if not path:
            yield self
            return
        for child in self.inside:
            if child.name == path[0]:
                yield from child.all(*path[1:])

    def first(self, *path: str) -> PartElement | None:
        """The first of `all`."""
        return next(self.all(*path), None)

    def below(self, name: str) -> Iterator[PartElement]:
        """Elements of this name at any depth."""
        for child in self.inside:
            if child.name == name:
                yield child
            yield from child.below(name)

    def get(self, key: str, otherwise: str = "") -> str:
        """An attribute."""
        return self.attributes.get(key, otherwise)


class Tree(MarkupHandler):
    """All elements of a part, below `root`."""

    def __init__(self, budget: Budget) -> None:
        self.root = PartElement("", {})
        self._budget = budget
        self._open = [self.root]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._budget.spend("chars", sum(map(len, attributes.values())))
        bare = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        node = PartElement(name.rpartition(":")[2], bare)
        self._open[-1].inside.append(node)
        self._open.append(node)

    def text(self, data: str) -> None:
        self._budget.spend("chars", len(data))
        inside = self._open[-1].inside
        if inside:
            inside[-1].tail += data
        else:
            self._open[-1].text += data

    def end(self, name: str) -> None:
        self._open.pop()
