"""Office Open XML text documents (ECMA-376 part 1, WordprocessingML): their paragraphs and what was set on them.

Invariant: only the main part of the archive is read. Content other than plain text of the body is named among the
extras. So a document that says more than its paragraphs can't look like a plain document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.grid import CellText, number
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.relations import related

_PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
}
_PLAIN = {  # of the body, beside text and properties: says nothing, or where a page happened to end
    "document", "background", "body", "p", "r", "t", "tab", "br", "cr", "proofErr", "bookmarkStart", "bookmarkEnd",
    "lastRenderedPageBreak", "noBreakHyphen", "sym",
}  # fmt: skip
_IN_WORDS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_GONE = {"moveFrom", "mc:Fallback"}  # text that stands elsewhere, or that stands here once more for older programs
_PLANE = 0x10000  # symbols' numbers are below it
_SURROGATES = range(0xD800, 0xE000)
_FLAGS = {"b": "bold", "i": "italic", "strike": "strike", "dstrike": "strike twice", "vanish": "hidden"}
_FLAGS |= {name: name for name in ("caps", "smallCaps", "outline", "shadow", "emboss", "imprint")}
_VALUED = {"u": "underline", "color": "color", "sz": "size", "highlight": "highlight", "vertAlign": "at"}
_OFF = {"0", "false", "off", "none", "auto", "baseline"}
_ALIGNED = {"left": "", "start": "", "right": "right", "end": "right", "center": "center", "both": "justify"}
_LINE = 240  # of w:spacing, a single line
_MARK_CHARS, _EXTRAS = 64, 16


class _Body(MarkupHandler):
    """The paragraphs of the main part."""

    def __init__(self, budget: Budget) -> None:
        self.paragraphs: list[dict[str, Any]] = []
        self.extras: set[str] = set()
        self._budget = budget
        self._text = CellText(budget.bounds.cell_chars)
        self._path: list[str] = []
        self._properties = ""  # the element that sets properties which we are in: its depth tells when it ends
        self._depth = 0
        self._marks: dict[str, str] = {}  # of the run
        self._open: list[dict[str, Any]] = []  # the paragraphs that we are in: a box's stand in another one
        self._gone = 0  # how deep in what is not read
        self.page_breaks = 0
        self.tables: list[list[list[list[int]]]] = []  # of each its rows, of a row its cells, of a cell its paragraphs
        self._tables: list[list[list[list[int]]]] = []  # that we are in

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if self._gone or name in _GONE:
            self._gone += 1
            self._more(name)
        elif self._properties:
            self._property(name, attributes)
        elif name in ("pPr", "rPr", "sectPr"):
            self._properties, self._depth = name, len(self._path)
        elif name == "p":
            self._end_run()
            self._budget.spend("cells")
            if self._tables and self._tables[-1] and self._tables[-1][-1]:
                self._tables[-1][-1][-1].append(len(self.paragraphs))
            self.paragraphs.append({"spans": [], "marks": {}})
            self._open.append(self.paragraphs[-1])
        elif name == "br" and attributes.get("type") is not None:
            self.page_breaks += attributes["type"] == "page"
            self._more(f"{attributes['type']} break")
        elif name in _IN_WORDS:
            self._text.add(_IN_WORDS[name])
        elif name == "sym":
            self._text.add(_symbol(attributes.get("char", "")))
        elif name not in _PLAIN:
            self._more(name)
            self._table(name)

    def _table(self, name: str) -> None:
        if name == "tbl":
            self._tables.append([])
            self.tables.append(self._tables[-1])
        elif self._tables and name == "tr":
            self._tables[-1].append([])
        elif self._tables and self._tables[-1] and name == "tc":
            self._budget.spend("cells")
            self._tables[-1][-1].append([])

    def text(self, data: str) -> None:
        if self._path and self._path[-1] == "t" and not self._gone:
            self._text.add(data)

    def end(self, name: str) -> None:
        if self._gone:
            self._gone -= 1
        elif self._properties:
            if len(self._path) == self._depth:
                self._properties = ""
        elif name in ("r", "p"):
            self._end_run()
            self._marks = {}
            if name == "p":
                self._open.pop()
        elif name == "tbl":
            self._tables.pop()
        self._path.pop()

    def _more(self, name: str) -> None:
        if len(self.extras) < _EXTRAS:
            self.extras.add(name[:_MARK_CHARS])

    def _property(self, name: str, attributes: Mapping[str, str]) -> None:
        """A property; one below another, as the look of a paragraph's own mark, says nothing of text."""
        if len(self._path) != self._depth + 1:
            return
        if self._properties == "rPr":
            self._marks |= _looks(name, attributes)
        elif self._properties == "pPr" and self._open:
            self._open[-1]["marks"] |= _layout(name, attributes)
        elif self._properties == "sectPr" and name in ("headerReference", "footerReference"):
            self._more(name)

    def _end_run(self) -> None:
        text = self._text.take()
        if not text:
            return
        if not self._open:
            raise RefusedError("not_a_workbook")
        marks = sorted(mark for mark in self._marks.values() if mark)
        spans = self._open[-1]["spans"]
        self._budget.spend("chars", len(text) + sum(map(len, marks)))
        if spans and spans[-1]["marks"] == marks:
            spans[-1]["pieces"].append(text)
        else:
            self._budget.spend("cells")
            spans.append({"pieces": [text], "marks": marks})


def _symbol(digits: str) -> str:
    """The character that a symbol is; "" where its number is none."""
    code = int(digits, 16) if re.fullmatch("[0-9A-Fa-f]{1,6}", digits) else _PLANE
    return "" if code >= _PLANE or code in _SURROGATES else chr(code)


def _looks(name: str, attributes: Mapping[str, str]) -> dict[str, str]:
    """What a property of a run sets, by the property's name; "" where it takes something away."""
    value = attributes.get("val", "")
    if name in _FLAGS:
        return {name: "" if value in _OFF else _FLAGS[name]}
    if name == "sz":
        half_points = number(value)
        return {name: "" if half_points is None else f"size {half_points / 2:g}"}
    if name in _VALUED:
        return {name: "" if value in _OFF else f"{_VALUED[name]} {value.lower()}"[:_MARK_CHARS]}
    if name == "rFonts" and "ascii" in attributes:
        return {name: f"font {attributes['ascii']}"[:_MARK_CHARS]}
    if name == "shd":
        fill = attributes.get("fill", "auto")
        return {name: "" if fill in _OFF else f"shade {fill.lower()}"[:_MARK_CHARS]}
    return {name: f"style {value}"[:_MARK_CHARS]} if name == "rStyle" else {}


def _layout(name: str, attributes: Mapping[str, str]) -> dict[str, str]:
    """What a property of a paragraph sets, likewise."""
    value = attributes.get("val", "")
    if name == "jc":
        return {name: _ALIGNED.get(value, value[:_MARK_CHARS])}
    if name == "pStyle":
        return {name: "" if value == "Normal" else f"style {value}"[:_MARK_CHARS]}
    if name == "spacing" and "line" in attributes:
        line = number(attributes["line"])
        if attributes.get("lineRule", "auto") != "auto" or line is None:
            return {name: "line of its own"}
        return {name: "" if line == _LINE else f"line {line / _LINE:.3g}"}
    if name == "pageBreakBefore":
        return {name: "" if value in _OFF else "page break"}
    return {name: {"numPr": "list", "sectPr": "section"}.get(name, "")}


def read(archive: Archive, budget: Budget) -> dict[str, Any]:
    """The document as `apis.tasks.verify.verify.TextDocument` has it. Raises RefusedError."""

    def parse(part: str, handler: MarkupHandler) -> None:
        walk(archive.pieces(part), handler, _PREFIXES, budget)

    main = related("", parse).of_kind("officeDocument")
    if main is None:
        raise RefusedError("not_a_workbook")
    body = _Body(budget)
    parse(main, body)
    if not body.paragraphs:
        raise RefusedError("not_a_workbook")
    return {
        "paragraphs": [_answer(paragraph) for paragraph in body.paragraphs],
        "extras": sorted(body.extras),
        "tables": body.tables,
        "page_breaks": body.page_breaks,
    }


def _answer(paragraph: Mapping[str, Any]) -> dict[str, Any]:
    spans = [{"text": "".join(span["pieces"]), "marks": span["marks"]} for span in paragraph["spans"]]
    return {"spans": spans, "marks": sorted(mark for mark in paragraph["marks"].values() if mark)}
