"""OpenDocument spreadsheets (ODF 1.2 part 1).

Invariant: repeated cells and rows are counted before they are laid out, so a file can't make more than the bounds
allow. Empty cells cost nothing, however often they are repeated.
"""

from __future__ import annotations

from apis.documents.read.archive import Archive
from apis.documents.read.bounds import Budget, RefusedError
from apis.documents.read.grid import CellText, Grid, Value, count, number
from apis.documents.read.markup import MarkupHandler, walk
from apis.documents.read.opendocument import PARAGRAPHS, namespace, refuse_encrypted, white_space
from apis.guest.addresses import COLUMNS, ROWS

MIME = b"application/vnd.oasis.opendocument.spreadsheet"
_PREFIXES = {namespace(name): name for name in ("office", "table", "text", "style")}


class _Content(MarkupHandler):
    """The tables of content.xml."""

    def __init__(self, budget: Budget) -> None:
        self.grids: list[Grid] = []
        self._budget = budget
        self._text = CellText(budget.bounds.cell_chars)
        self._hidden_styles: set[str] = set()
        self._style = ""
        self._tables = 0  # how deep in tables: one in a cell is no sheet
        self._notes = 0  # how deep in a comment or a shape
        self._row, self._rows = 0, 1
        self._column = 0
        self._filled: list[tuple[int, int, Value | None, str | None]] = []  # column, times, value, formula
        self._cell: dict[str, str] | None = None
        self._paragraphs = 0
        self._inside = 0  # how deep in a paragraph

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "style:style":
            self._style = attributes.get("style:name", "")
        elif name == "style:table-properties" and attributes.get("table:display") == "false":
            self._hidden_styles.add(self._style)
        elif name == "table:table":
            self._begin_table(attributes)
        elif self._tables != 1:
            return
        elif name in ("office:annotation", "table:shapes") or self._notes:
            self._notes += 1
        elif name == "table:table-row":
            self._rows = count(attributes.get("table:number-rows-repeated"), ROWS)
            self._column, self._filled = 0, []
        elif name in ("table:table-cell", "table:covered-table-cell"):
            self._cell, self._paragraphs = attributes, 0
            self._text.take()
        elif self._cell is not None:
            self._begin_text(name, attributes)

    def _begin_table(self, attributes: dict[str, str]) -> None:
        self._tables += 1
        if self._tables == 1:
            if len(self.grids) == self._budget.bounds.sheets:
                raise RefusedError("too_big")
            hidden = attributes.get("table:style-name", "") in self._hidden_styles
            self.grids.append(Grid(attributes.get("table:name", ""), self._budget, hidden=hidden))
            self._row = 0

    def _begin_text(self, name: str, attributes: dict[str, str]) -> None:
        if name in PARAGRAPHS:
            if self._paragraphs:
                self._text.add("\n")
            self._paragraphs += 1
            self._inside += 1
        else:
            self._text.add(white_space(name, attributes, self._budget.bounds.cell_chars, "\n"))

    def text(self, data: str) -> None:
        if self._inside and not self._notes and self._tables == 1:
            self._text.add(data)

    def end(self, name: str) -> None:
        if name == "table:table":
            self._tables -= 1
        elif self._tables != 1:
            return
        elif self._notes:
            self._notes -= 1
        elif name in PARAGRAPHS:
            self._inside = max(0, self._inside - 1)
        elif name in ("table:table-cell", "table:covered-table-cell") and self._cell is not None:
            self._end_cell(self._cell)
            self._cell = None
        elif name == "table:table-row":
            self._end_row()

    def _end_cell(self, attributes: dict[str, str]) -> None:
        times = count(attributes.get("table:number-columns-repeated"), ROWS)
        value, formula = _value(attributes, self._text.take()), attributes.get("table:formula")
        if formula is not None and len(formula) > self._budget.bounds.cell_chars:
            raise RefusedError("too_big")
        if value not in (None, "") or formula is not None:
            if times > COLUMNS - self._column:
                raise RefusedError("too_big")
            said = None if formula is None else "=" + formula.partition("=")[2]
            self._filled.append((self._column, times, value, said))
        self._column = min(self._column + times, COLUMNS)

    def _end_row(self) -> None:
        cells = sum(times for _, times, _, _ in self._filled) * self._rows
        if cells > self._budget.bounds.cells:
            raise RefusedError("too_big")
        if cells:
            for row in range(self._row, self._row + self._rows):
                for column, times, value, formula in self._filled:
                    for step in range(times):
                        self.grids[-1].put(row, column + step, value, formula)
        self._row = min(self._row + self._rows, ROWS)


def _value(attributes: dict[str, str], shown: str) -> Value | None:
    kind = attributes.get("office:value-type")
    if kind in ("float", "percentage", "currency"):
        value = number(attributes.get("office:value", ""))
        return shown if value is None else value
    if kind == "boolean":
        return attributes.get("office:boolean-value") == "true"
    if kind in ("date", "time"):
        return attributes.get(f"office:{kind}-value", shown)
    if kind == "string":
        return attributes.get("office:string-value") or shown  # an error says it in its text alone
    return shown or None


def read(archive: Archive, budget: Budget) -> list[Grid]:
    """The sheets in their order. Raises RefusedError."""
    refuse_encrypted(archive)
    content = _Content(budget)
    walk(archive.pieces("content.xml"), content, _PREFIXES, budget)
    if not content.grids:
        raise RefusedError("not_a_workbook")
    return content.grids
