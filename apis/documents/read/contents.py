"""What a text document or a slide of Office Open XML says, without regard to looks and places.

Of the archive only the parts that are named here are read, each once. An element counts where it lies, in whichever
branch of alternate contents.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

import msgspec

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.markup import MarkupNode, MarkupTree, walk

_PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "urn:schemas-microsoft-com:vml": "v",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
}
_WORDS, _TABLES, _ROWS, _CELLS = (("w:t", "a:t"), ("w:tbl", "a:tbl"), ("w:tr", "a:tr"), ("w:tc", "a:tc"))
_MARKS = {  # what a run of a text document may have in it -> its mark
    "w:drawing": "image",
    "w:footnoteReference": "footnote",
    "w:endnoteReference": "endnote",
    "w:commentReference": "comment",
    "w:br": "page break",
}
_BODY = ("w:document", "w:body", "w:p")
_OF_BODY = (_BODY, (*_BODY, "w:hyperlink"))  # where runs count
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


class _Package:
    """The parts of a document, and the words in them."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self._archive = Archive(data, budget)
        self._budget = budget

    def __contains__(self, part: str) -> bool:
        return part in self._archive

    def part(self, name: str) -> MarkupNode:
        """A part's root, with the element of the document below it. Raises RefusedError."""
        tree = MarkupTree(self._budget)
        walk(self._archive.pieces(name), tree, _PREFIXES, self._budget)
        return tree.root

    def below(self, node: MarkupNode, *names: str) -> Iterator[MarkupNode]:
        """Elements of these names in one."""
        self._budget.spend("looks", node.size)
        return node.below(*names)

    def words(self, node: MarkupNode) -> Iterator[str]:
        """The pieces of words in an element."""
        for piece in self.below(node, *_WORDS):
            text = "".join(part for part in piece.inside if isinstance(part, str))
            self._budget.spend("chars", len(text))
            yield text

    def stripped(self, node: MarkupNode) -> str:
        """The words of an element, each piece without blanks at its ends."""
        return "".join(word.strip() for word in self.words(node))

    def tables(self, node: MarkupNode) -> tuple[str, ...]:
        """Each table as text: cells are parted by ", ", rows by a newline."""
        return tuple(
            "\n".join(", ".join(map(self.stripped, self.below(row, *_CELLS))) for row in self.below(table, *_ROWS))
            for table in self.below(node, *_TABLES)
        )


def _stream(package: _Package, node: MarkupNode, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Marks and words of the body below `node`, which lies at `path`, in their order."""
    if node.name == "w:r" and path[:-1] in _OF_BODY and node.first("w:t") is not None:
        yield "", "".join(package.words(node))
    elif node.name == "w:tbl":
        yield "table", ""
    elif node.name == "v:textbox":
        yield "box", ""
    elif path[-3:-1] == ("w:p", "w:r") and (mark := _mark(node)):
        yield mark, ""
    for child in node.elements:
        yield from _stream(package, child, (*path, child.name))


def _mark(node: MarkupNode) -> str:
    return "" if node.name == "w:br" and node.attributes.get("w:type") != "page" else _MARKS.get(node.name, "")


def _joined(stream: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The stream with the words between two marks as one."""
    words = ""
    for mark, text in stream:
        if mark and words:
            yield "", words
            words = ""
        if mark:
            yield mark, ""
        words += text
    if words:
        yield "", words


def text_document(data: bytes, budget: Budget) -> DocumentWords:
    """What a docx says. Raises RefusedError."""
    package = _Package(data, budget)
    main = package.part("word/document.xml")

    def notes(part: str, kind: str) -> tuple[str, ...]:
        """Footnotes, endnotes or comments that somebody has written."""
        root = package.part(f"word/{part}.xml") if f"word/{part}.xml" in package else MarkupNode("", {})
        written = (note for top in root.elements for note in top.elements if note.name == kind)
        return tuple(text for note in written if "w:type" not in note.attributes and (text := package.stripped(note)))

    return DocumentWords(
        body=tuple(_joined(_stream(package, main, ()))),
        tables=package.tables(main),
        boxes=tuple("".join(package.words(box)).strip() for box in main.below("v:textbox")),
        footnotes=notes("footnotes", "w:footnote"),
        endnotes=notes("endnotes", "w:endnote"),
        comments=notes("comments", "w:comment"),
    )


def slides(data: bytes, budget: Budget) -> list[SlideWords]:
    """What each slide of a pptx says, in their order. Raises RefusedError."""
    package = _Package(data, budget)
    listed = [node.attributes.get("r:id", "") for node in package.part("ppt/presentation.xml").below("p:sldId")]
    if len(listed) > _SLIDES:
        raise RefusedError("too_big")
    parts = {
        one.attributes.get("Id", ""): posixpath.normpath(posixpath.join("/ppt", one.attributes.get("Target", "")))[1:]
        for one in package.part("ppt/_rels/presentation.xml.rels").below("Relationship")
        if one.attributes.get("TargetMode") != "External"
    }
    return [_slide(package, package.part(parts.get(name, ""))) for name in listed]


def _slide(package: _Package, root: MarkupNode) -> SlideWords:
    shapes = list(root.below("p:sp"))
    bodies = (body for shape in shapes for body in shape.elements if body.name == "p:txBody")
    boxes = ("".join(package.words(body)).strip() for body in bodies)
    filled = sum(1 for shape in shapes for _ in package.below(shape, "a:blip"))
    pictures = sum(1 for _ in root.below("p:pic")) + filled
    return SlideWords(tuple(filter(None, boxes)), package.tables(root), pictures)
