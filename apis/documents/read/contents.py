"""What a text document or a slide of Office Open XML says, without regard to looks and places.

Invariant: of the archive only the parts that are named here are read, each once. An element counts where it lies, in
whichever branch of alternate contents.
"""

from __future__ import annotations

import msgspec

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.relations import related

_PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "urn:schemas-microsoft-com:vml": "v",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
}
_WORDS = ("w:t", "a:t")
_MARKS = {  # what a run of a text document may have in it -> its mark
    "w:drawing": "image",
    "w:footnoteReference": "footnote",
    "w:endnoteReference": "endnote",
    "w:commentReference": "comment",
    "w:br": "page break",
}
_BODY = ["w:document", "w:body", "w:p"]
_SLIDES = 1000


class DocumentWords(msgspec.Struct, frozen=True):
    """What a text document says. `body` has its words and marks in their order, the words between two marks as one."""

    body: tuple[tuple[str, str], ...]  # a mark and "", or "" and words
    tables: tuple[str, ...]
    boxes: tuple[str, ...]
    footnotes: tuple[str, ...]
    endnotes: tuple[str, ...]
    comments: tuple[str, ...]


class SlideWords(msgspec.Struct, frozen=True):
    """What a slide says: the words of its boxes that have some, its tables, and how many pictures it has."""

    boxes: tuple[str, ...]
    tables: tuple[str, ...]
    pictures: int


class _Words(MarkupHandler):
    """Hands each piece of words to whatever is open around it."""

    def __init__(self, budget: Budget) -> None:
        self.path: list[str] = []
        self.tables: list[list[list[list[str]]]] = []  # in each its rows, in them cells, in them words
        self._budget = budget
        self._words = ""
        self._open: list[tuple[int, list[str]]] = []  # how deep it began, the words that it takes
        self._open_tables: list[tuple[int, list[list[list[str]]]]] = []
        self._open_rows: list[tuple[int, list[list[str]]]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name)
        self._words = "" if name in _WORDS else self._words
        depth = len(self.path)
        if name in ("w:tbl", "a:tbl"):
            self.tables.append([])
            self._open_tables.append((depth, self.tables[-1]))
        elif name in ("w:tr", "a:tr"):
            row: list[list[str]] = []
            for _, table in self._open_tables:
                self._budget.spend("cells")
                table.append(row)
            self._open_rows.append((depth, row))
        elif name in ("w:tc", "a:tc"):
            cell = self.taken()
            for _, row in self._open_rows:
                self._budget.spend("cells")
                row.append(cell)

    def taken(self) -> list[str]:
        """A list that takes the words of the element that begins."""
        self._open.append((len(self.path), []))
        return self._open[-1][1]

    def text(self, data: str) -> None:
        if self.path[-1] in _WORDS:
            self._budget.spend("chars", len(data))
            self._words += data

    def end(self, name: str) -> None:
        if name in _WORDS and self._words:
            for _, words in self._open:
                self._budget.spend("chars", len(self._words))
                words.append(self._words)
        depth = len(self.path)
        for open_ in (self._open, self._open_tables, self._open_rows):
            if open_ and open_[-1][0] == depth:
                open_.pop()
        self.path.pop()

    def told(self) -> tuple[str, ...]:
        """Each table as text: cells are parted by ", ", rows by a newline."""
        return tuple("\n".join(", ".join(_joined(cell) for cell in row) for row in table) for table in self.tables)


def _joined(words: list[str]) -> str:
    return "".join(word.strip() for word in words)


class _Document(_Words):
    """The body of a text document: its words and marks in their order."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.stream: list[list[str] | str] = []
        self.boxes: list[list[str]] = []
        self._runs: list[tuple[int, int]] = []  # how deep a run of the body began, and its place in the stream
        self._with_words: set[int] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        path = self.path
        if name == "w:r" and path[:-1] in (_BODY, [*_BODY, "w:hyperlink"]):
            self._runs.append((len(path), len(self.stream)))
            self.stream.append(self.taken())
        elif name == "w:t" and self._runs and self._runs[-1][0] == len(path) - 1:
            self._with_words.add(self._runs[-1][1])
        elif name == "w:tbl":
            self.stream.append("table")
        elif name == "v:textbox":
            self.stream.append("box")
            self.boxes.append(self.taken())
        elif mark := self._mark(name, attributes):
            self.stream.append(mark)

    def _mark(self, name: str, attributes: dict[str, str]) -> str:
        if self.path[-3:-1] != ["w:p", "w:r"] or (name == "w:br" and attributes.get("w:type") != "page"):
            return ""
        return _MARKS.get(name, "")

    def end(self, name: str) -> None:
        if self._runs and self._runs[-1][0] == len(self.path):
            self._runs.pop()
        super().end(name)

    def whole(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a mark and its text; the words between two marks are one."""
        found: list[tuple[str, str]] = []
        for place, one in enumerate(self.stream):
            if isinstance(one, str):
                found.append((one, ""))
                continue
            words = "".join(one) if place in self._with_words else ""
            if words and found and not found[-1][0]:
                words = found.pop()[1] + words
            if words:
                found.append(("", words))
        return tuple(found)


class _Notes(_Words):
    """Footnotes, endnotes or comments that somebody has written."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.found: list[list[str]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if len(self.path) == 2 and name in ("w:footnote", "w:endnote", "w:comment") and "w:type" not in attributes:
            self.found.append(self.taken())


class _Listed(MarkupHandler):
    """The relations of a presentation's slides, in their order."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "p:sldId":
            self.found.append(attributes.get("r:id", ""))


class _Slide(_Words):
    """A slide: the words of its boxes, and how many pictures it has."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self.boxes: list[list[str]] = []
        self.pictures = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.path[-2:] == ["p:sp", "p:txBody"]:
            self.boxes.append(self.taken())
        elif name == "p:pic" or (name == "a:blip" and "p:sp" in self.path):
            self.pictures += 1


def text_document(data: bytes, budget: Budget) -> DocumentWords:
    """What a docx says. Raises RefusedError."""
    archive, body = Archive(data, budget), _Document(budget)
    walk(archive.pieces("word/document.xml"), body, _PREFIXES, budget)

    def notes(part: str) -> tuple[str, ...]:
        found = _Notes(budget)
        if f"word/{part}.xml" in archive:
            walk(archive.pieces(f"word/{part}.xml"), found, _PREFIXES, budget)
        return tuple(text for words in found.found if (text := _joined(words)))

    boxes = tuple("".join(words).strip() for words in body.boxes)
    return DocumentWords(body.whole(), body.told(), boxes, notes("footnotes"), notes("endnotes"), notes("comments"))


def slides(data: bytes, budget: Budget) -> list[SlideWords]:
    """What each slide of a pptx says, in their order. Raises RefusedError."""
    archive, listed, main = Archive(data, budget), _Listed(), "ppt/presentation.xml"

    def parse(part: str, handler: MarkupHandler) -> None:
        walk(archive.pieces(part), handler, _PREFIXES, budget)

    parse(main, listed)
    parts = related(main, parse).parts
    if len(listed.found) > _SLIDES:
        raise RefusedError("too_big")
    found = []
    for relation in listed.found:
        slide = _Slide(budget)
        parse(parts.get(relation, ("", ""))[1], slide)
        boxes = tuple(text for words in slide.boxes if (text := "".join(words).strip()))
        found.append(SlideWords(boxes, slide.told(), slide.pictures))
    return found
