"""XML by events, within bounds.

Invariant: a document type or an entity of the document's own refuses the file before anything is expanded. Depth and
number of elements are bounded. For any bytes, RefusedError is the only error raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pyexpat import ErrorString, ExpatError, ParserCreate, XMLParserType, errors

from apis.documents.read.bounds import Budget, RefusedError

_SEPARATOR = " "
_ATTRIBUTES_MAX = 256


class MarkupHandler:
    """What wants to know of elements. Names are "prefix:local" by the namespaces given, "local" where there is none."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, data: str) -> None:
        """Characters, in pieces."""


class MarkupNode:
    """An element: its name with a prefix, attributes likewise, and what is in it, texts and elements in their order."""

    __slots__ = ("attributes", "inside", "name", "size")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.inside: list[MarkupNode | str] = []
        self.size = 0  # elements in it, at any depth

    @property
    def elements(self) -> Iterator[MarkupNode]:
        """The elements in it."""
        return (child for child in self.inside if isinstance(child, MarkupNode))

    def first(self, name: str) -> MarkupNode | None:
        """The first element in it that is called so."""
        return next((child for child in self.elements if child.name == name), None)

    def below(self, *names: str) -> Iterator[MarkupNode]:
        """Elements of these names in it, at any depth."""
        for child in self.elements:
            if child.name in names:
                yield child
            yield from child.below(*names)


class MarkupTree(MarkupHandler):
    """All elements of a part, below `root`. What is kept is counted against the budget."""

    def __init__(self, budget: Budget) -> None:
        self.root = MarkupNode("", {})
        self._budget = budget
        self._open = [self.root]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._budget.spend("chars", sum(map(len, attributes.values())))
        node = MarkupNode(name, attributes)
        self._open[-1].inside.append(node)
        self._open.append(node)

    def text(self, data: str) -> None:
        self._budget.spend("chars", len(data))
        inside = self._open[-1].inside
        if inside and isinstance(inside[-1], str):
            inside[-1] += data
        else:
            inside.append(data)

    def end(self, name: str) -> None:
        self._open[-2].size += 1 + self._open.pop().size


def walk(pieces: Iterable[bytes], handler: MarkupHandler, prefixes: Mapping[str, str], budget: Budget) -> None:
    """Parse and tell `handler`. `prefixes` are the known namespaces with the prefix that each is called by here."""
    parser = ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    parser.ordered_attributes = True
    depth = 0

    def named(name: str) -> str:
        space, separator, local = name.rpartition(_SEPARATOR)
        if not separator:
            return local
        prefix = prefixes.get(space, "?")
        return f"{prefix}:{local}" if prefix else local

    def start(name: str, attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        budget.spend("elements")
        if depth > budget.bounds.depth or len(attributes) > 2 * _ATTRIBUTES_MAX:
            raise RefusedError("too_big")
        handler.start(named(name), {named(key): value for key, value in zip(*[iter(attributes)] * 2, strict=True)})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        handler.end(named(name))

    def refuse(*_: object) -> int:
        raise RefusedError("xml_entity")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    _feed(parser, pieces)


def _feed(parser: XMLParserType, pieces: Iterable[bytes]) -> None:
    try:
        for piece in pieces:
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except ExpatError as error:
        wants_memory = ErrorString(error.code) == errors.XML_ERROR_NO_MEMORY
        raise RefusedError("too_big" if wants_memory else "not_a_workbook") from None
