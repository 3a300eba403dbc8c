"""XML by events, within bounds.

Invariant: a document type or an entity of the document's own refuses the file before anything is expanded. Depth and
number of elements are bounded. For any bytes, RefusedError is the only error raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
