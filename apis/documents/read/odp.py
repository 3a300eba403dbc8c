"""OpenDocument presentations (ODF 1.3 part 3): the text of every box of every slide, and what lies behind it.

Invariant: only `content.xml` is read. Slides, boxes and characters are counted against the bounds while they are found.
"""

from __future__ import annotations

from typing import Any

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.grid import CellText
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.opendocument import PARAGRAPHS, namespace, refuse_encrypted, white_space

MIME = b"application/vnd.oasis.opendocument.presentation"
_PREFIXES = {namespace(name): name for name in ("office", "text", "style", "presentation")}
_PREFIXES[namespace("drawing")] = "draw"


class _Content(MarkupHandler):
    """The slides of content.xml; automatic styles stand in front of them."""

    def __init__(self, budget: Budget) -> None:
        self.slides: list[dict[str, Any]] = []
        self._budget = budget
        self._text = CellText(budget.bounds.cell_chars)
        self._style = ""
        self._grounds: dict[str, str] = {}  # colour behind the slides of a style
        self._hidden: set[str] = set()
        self._depth = 0  # below a slide, itself included
        self._box: dict[str, str] | None = None
        self._lines = 0
        self._inside = 0  # how deep in a paragraph

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth:
            self._depth += 1
            if self._depth == 2 and name.startswith("draw:"):
                self._begin_box(name, attributes)
            elif self._box is not None:
                self._begin_text(name, attributes)
        elif name == "draw:page":
            self._begin_slide(attributes)
        elif name == "style:style":
            self._style = attributes.get("style:name", "")
        elif name == "style:drawing-page-properties":
            self._look(attributes)

    def _look(self, attributes: dict[str, str]) -> None:
        self._budget.spend("chars", len(self._style))
        kind = attributes.get("draw:fill", "none")
        if kind != "none":
            self._grounds[self._style] = attributes.get("draw:fill-color", kind)[:32] if kind == "solid" else kind[:32]
        if attributes.get("presentation:visibility") == "hidden":
            self._hidden.add(self._style)

    def _begin_slide(self, attributes: dict[str, str]) -> None:
        self._budget.spend("cells")
        style = attributes.get("draw:style-name", "")
        self._depth = 1
        self.slides.append({"boxes": [], "background": self._grounds.get(style, ""), "hidden": style in self._hidden})

    def _begin_box(self, name: str, attributes: dict[str, str]) -> None:
        self._budget.spend("cells")
        self._box = {"kind": attributes.get("presentation:class", name.removeprefix("draw:"))[:64]}
        self._lines = self._inside = 0
        self._text.take()

    def _begin_text(self, name: str, attributes: dict[str, str]) -> None:
        if name in PARAGRAPHS:
            if self._lines:
                self._text.add("\n")
            self._lines += 1
            self._inside += 1
        elif self._inside:
            self._text.add(white_space(name, attributes, self._budget.bounds.cell_chars, "\v"))

    def text(self, data: str) -> None:
        if self._inside:
            self._text.add(data)

    def end(self, name: str) -> None:
        if not self._depth:
            return
        if self._box is not None and self._depth == 2:
            said = self._text.take()
            self._budget.spend("chars", len(said))
            self.slides[-1]["boxes"].append({**self._box, "text": said})
            self._box, self._inside = None, 0
        elif name in PARAGRAPHS:
            self._inside = max(0, self._inside - 1)
        self._depth -= 1


def read(archive: Archive, budget: Budget) -> list[dict[str, Any]]:
    """The slides in their order. Raises RefusedError."""
    if "mimetype" not in archive or archive.read("mimetype", len(MIME) + 2).strip() != MIME:
        raise RefusedError("not_a_presentation")
    refuse_encrypted(archive)
    content = _Content(budget)
    walk(archive.pieces("content.xml"), content, _PREFIXES, budget)
    if not content.slides:
        raise RefusedError("not_a_presentation")
    return content.slides
