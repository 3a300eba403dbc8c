"""OpenDocument text documents (OpenDocument 1.3): their paragraphs and the looks that automatic styles set.

Invariant: only content.xml is read. Recorded changes are no text of the document, and are named among the extras.
"""

from __future__ import annotations

from typing import Any

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.markup import walk
from apis.documents.read.opendocument import refuse_encrypted
from apis.documents.read.tree import PartElement, Tree

MIME = b"application/vnd.oasis.opendocument.text"
_PARAGRAPHS = ("p", "h")
_IN_WORDS = {"tab": "\t", "line-break": "\n"}
_APART = ("annotation", "note", "tracked-changes")
_ABOUT = ("title", "desc")  # of a picture or a drawing: no text of the document
_WORDS = (*_PARAGRAPHS, "span", "a")  # in which a title is a field, that of the document
_LOOKS = {  # attribute, value -> mark
    ("font-weight", "bold"): "bold", ("font-style", "italic"): "italic", ("text-line-through-style", "solid"): "strike",
    ("text-underline-style", "solid"): "underline single",
}  # fmt: skip


class _Document:
    """The paragraphs of a document in the making."""

    def __init__(self, styles: dict[str, list[str]], budget: Budget) -> None:
        self.paragraphs: list[dict[str, Any]] = []
        self.extras: set[str] = set()
        self.tables: list[list[list[list[int]]]] = []
        self._styles = styles
        self._budget = budget

    def blocks(self, element: PartElement, cell: list[int] | None = None) -> None:
        """Paragraphs and tables below `element`, which stands in `cell`."""
        for child in element.inside:
            if child.name in _PARAGRAPHS:
                if cell is not None:
                    cell.append(len(self.paragraphs))
                self.paragraphs.append({"spans": [], "marks": []})
                self._words(child, [])
            elif child.name == "table":
                self.extras.add("tbl")
                self.tables.append(rows := [])
                for row in child.below("table-row"):
                    cells: list[list[int]] = []
                    rows.append(cells)
                    for one in row.all("table-cell"):
                        self._budget.spend("cells")
                        cells.append([])
                        self.blocks(one, cells[-1])
            elif child.name in _APART:
                self.extras.add(child.name)
            elif child.name not in _ABOUT:
                self.blocks(child, cell)

    def _words(self, element: PartElement, marks: list[str]) -> None:
        self._add(element.text, marks)
        for child in element.inside:
            if child.name == "s":
                count = child.get("c", "1")
                few = count.isascii() and count.isdecimal() and len(count) <= 3
                self._add(" " * (int(count) if few else 1), marks)
            elif child.name in _IN_WORDS:
                self._add(_IN_WORDS[child.name], marks)
            elif child.name in _APART:
                self.extras.add(child.name)
            elif child.name not in _ABOUT or element.name in _WORDS:
                own = self._styles.get(child.get("style-name"), []) if child.name == "span" else []
                self._words(child, sorted({*marks, *own}))
            self._add(child.tail, marks)

    def _add(self, text: str, marks: list[str]) -> None:
        if not text:
            return
        self._budget.spend("chars", len(text) + sum(map(len, marks)))
        spans = self.paragraphs[-1]["spans"]
        if spans and spans[-1]["marks"] == marks:
            spans[-1]["text"] += text
        else:
            self._budget.spend("cells")
            spans.append({"text": text, "marks": marks})


def _marks(style: PartElement) -> list[str]:
    found = [
        mark for text in style.all("text-properties") for key, mark in _LOOKS.items() if text.get(key[0]) == key[1]
    ]
    for text in style.all("text-properties"):
        for key, word in (("background-color", "highlight"), ("color", "color")):
            if text.get(key, "transparent").startswith("#"):
                found.append(f"{word} {text.get(key)[1:33].lower()}")
    return found


def read(archive: Archive, budget: Budget) -> dict[str, Any]:
    """The document as `apis.tasks.verify.verify.TextDocument` has it. Raises RefusedError."""
    refuse_encrypted(archive)
    tree = Tree(budget)
    walk(archive.pieces("content.xml"), tree, {}, budget)
    content = tree.root.first("document-content")
    body = content.first("body", "text") if content is not None else None
    if content is None or body is None:
        raise RefusedError("not_a_workbook")
    styles = {style.get("name"): _marks(style) for style in content.all("automatic-styles", "style")}
    document = _Document(styles, budget)
    document.blocks(body)
    if not document.paragraphs:
        raise RefusedError("not_a_workbook")
    return {"paragraphs": document.paragraphs, "extras": sorted(document.extras), "tables": document.tables}
