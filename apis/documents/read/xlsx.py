"""Office Open XML spreadsheets (ECMA-376 part 1, SpreadsheetML).

Invariant: of the archive only the parts that the workbook itself names are read, each at most once.
"""

from __future__ import annotations

import re

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.grid import CellText, Grid, Value, number, place
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.relations import related

_PREFIXES = {
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main": "",
    "http://purl.oclc.org/ooxml/spreadsheetml/main": "",
    "http://schemas.openxmlformats.org/package/2006/relationships": "",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
}
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_SURROGATES = range(0xD800, 0xE000)


def _unescaped(text: str) -> str:
    """Without the escapes that stand for characters which XML can't hold (section 22.9.2.19 of the standard)."""

    def character(match: re.Match[str]) -> str:
        code = int(match[1], 16)
        return match[0] if code in _SURROGATES else chr(code)

    return _ESCAPED.sub(character, text) if "_x" in text else text


class _Sheets(MarkupHandler):
    """The workbook's list of sheets: name, relation, whether it is hidden."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, bool]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "sheet":
            hidden = attributes.get("state", "visible") != "visible"
            self.found.append((attributes.get("name", ""), attributes.get("r:id", ""), hidden))


class _Strings(MarkupHandler):
    """The shared strings, without phonetic guides."""

    def __init__(self, budget: Budget) -> None:
        self.found: list[str] = []
        self._budget = budget
        self._text = CellText(budget.bounds.cell_chars)
        self._inside = self._phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "rPh":
            self._phonetic = True
        self._inside = name == "t" and not self._phonetic

    def text(self, data: str) -> None:
        if self._inside:
            self._text.add(data)

    def end(self, name: str) -> None:
        self._inside = False
        if name == "rPh":
            self._phonetic = False
        elif name == "si":
            text = self._text.take()
            self._budget.spend("chars", len(text))
            self.found.append(_unescaped(text))


class _Cells(MarkupHandler):
    """The cells of one sheet."""

    def __init__(self, grid: Grid, strings: list[str], budget: Budget) -> None:
        self._grid = grid
        self._strings = strings
        self._row = self._column = -1
        self._kind = "n"
        self._texts = {name: CellText(budget.bounds.cell_chars) for name in ("v", "f", "t")}
        self._inside: str | None = None
        self._cell = self._formula = self._phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            self._row = place("A" + attributes["r"])[0] if "r" in attributes else self._row + 1
            self._column = -1
        elif name == "c":
            if "r" in attributes:
                self._row, self._column = place(attributes["r"])
            else:
                self._column += 1
            self._kind = attributes.get("t", "n")
            self._cell, self._formula = True, False
        elif name == "rPh":
            self._phonetic = True
        self._inside = name if self._cell and name in self._texts and not self._phonetic else None
        self._formula = self._formula or self._inside == "f"

    def text(self, data: str) -> None:
        if self._inside is not None:
            self._texts[self._inside].add(data)

    def end(self, name: str) -> None:
        self._inside = None
        if name == "rPh":
            self._phonetic = False
        elif name == "c":
            self._cell = False
            value, formula, inline = (self._texts[key].take() for key in ("v", "f", "t"))
            said = ("=" + formula if formula else "") if self._formula else None
            self._grid.put(self._row, self._column, self._value(value, inline), said)

    def _value(self, text: str, inline: str) -> Value | None:
        if self._kind == "inlineStr":
            return _unescaped(inline)
        if not text:
            return None
        if self._kind == "s":
            if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) < len(self._strings)):
                raise RefusedError("not_a_workbook")
            return self._strings[int(text)]
        if self._kind == "b":
            return text.strip() == "1"
        if self._kind == "n":
            value = number(text)
            return text if value is None else value
        return _unescaped(text)  # str: a formula's text; e: an error; d: a date in ISO 8601


def read(archive: Archive, budget: Budget) -> list[Grid]:
    """The sheets in their order. Raises RefusedError."""
    done: set[str] = set()

    def parse(part: str, handler: MarkupHandler) -> None:
        if part in done:
            raise RefusedError("not_a_workbook")
        done.add(part)
        walk(archive.pieces(part), handler, _PREFIXES, budget)

    top = related("", parse)
    book = top.of_kind("officeDocument")
    if book is None:
        raise RefusedError("not_a_workbook")
    below, sheets, strings = related(book, parse), _Sheets(), _Strings(budget)
    parse(book, sheets)
    shared = below.of_kind("sharedStrings")
    if shared is not None:
        parse(shared, strings)
    if not sheets.found or len(sheets.found) > budget.bounds.sheets:
        raise RefusedError("too_big" if sheets.found else "not_a_workbook")
    grids = []
    for name, relation, hidden in sheets.found:
        kind, part = below.parts.get(relation, ("", ""))
        grid = Grid(name, budget, hidden=hidden)
        grids.append(grid)
        if kind == "worksheet":
            parse(part, _Cells(grid, strings.found, budget))
        elif kind not in ("chartsheet", "dialogsheet"):
            raise RefusedError("not_a_workbook")
    return grids
