"""The cells of a spreadsheet, from the accessibility bus.

Invariant: at most `ROWS_MAX` x `COLUMNS_MAX` cells are looked at, however large the sheet: a table of LibreOffice has
2^34 children, so cells are asked for by row and column and never enumerated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gi
from guest.grid import Place, address, chosen, place_of

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi  # noqa: E402 - the version must be chosen first

ROWS_MAX, COLUMNS_MAX = 64, 32
ROWS_GAP, COLUMNS_GAP = 8, 5  # empty ones after which no more is looked for
TEXT_MAX = 500
_EDGE = 3  # pixels inside the corner of a table at which its outermost cell is asked for

Box = tuple[int, int, int, int]  # x, y, width, height


class Sheet:
    """One table of LibreOffice Calc. Raises GLib.Error from everywhere when the application does not answer."""

    def __init__(self, table: Any) -> None:
        self._table = table
        box = table.get_extents(Atspi.CoordType.SCREEN)
        self._box: Box = (box.x, box.y, box.width, box.height)

    def _cell(self, row: int, column: int) -> Any:
        return Atspi.Table.get_accessible_at(self._table, row, column)

    def _at(self, x: int, y: int, otherwise: Place) -> Place:
        cell = Atspi.Component.get_accessible_at_point(self._table, x, y, Atspi.CoordType.SCREEN)
        return (place_of(cell.get_name() or "") if cell is not None else None) or otherwise

    def _visible(self) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Top and height of each row that shows, left and width of each column, as the table itself reports them."""
        x, y, w, h = self._box
        first = self._at(x + _EDGE, y + _EDGE, (0, 0))
        last = self._at(x + w - _EDGE, y + h - _EDGE, (first[0] + ROWS_MAX, first[1] + COLUMNS_MAX))
        last_row = min(last[0], first[0] + ROWS_MAX - 1)
        last_column = min(last[1], first[1] + COLUMNS_MAX - 1)
        # Heights by the last column and widths by the last row: titles that span several cells stand at the start.
        rows, columns = {}, {}
        for row in range(first[0], last_row + 1):
            box = self._cell(row, last_column).get_extents(Atspi.CoordType.SCREEN)
            if box.height > 0:
                rows[row] = (box.y, box.height)
        for column in range(first[1], last_column + 1):
            box = self._cell(last_row, column).get_extents(Atspi.CoordType.SCREEN)
            if box.width > 0:
                columns[column] = (box.x, box.width)
        return rows, columns

    def _texts(self, rows: dict[int, Any], columns: dict[int, Any], until: float) -> dict[Place, str]:
        """What the cells show, up to where a row or the sheet stays empty for a while."""
        found: dict[Place, str] = {}
        rightmost, lowest = 0, 0  # positions among what shows
        for down, row in enumerate(rows):
            if time.monotonic() > until or down > lowest + ROWS_GAP:
                break
            for right, column in enumerate(columns):
                if right > rightmost + COLUMNS_GAP:
                    break
                cell = self._cell(row, column)
                count = Atspi.Text.get_character_count(cell)
                if count > 0:
                    found[row, column] = Atspi.Text.get_text(cell, 0, min(count, TEXT_MAX))
                    rightmost, lowest = max(rightmost, right), down
        return found

    def cells(self, current: Place | None, until: float) -> Iterator[tuple[str, str, Box, list[str]]]:
        """Name, shown text, box and states of each cell that is said; `until` is a moment of the monotonic clock."""
        rows, columns = self._visible()
        texts = self._texts(rows, columns, until)
        for row, column in chosen(texts, list(rows), list(columns), current):
            (y, h), (x, w) = rows[row], columns[column]
            states = self._cell(row, column).get_state_set()
            said = ["sen", "edt"]
            if (row, column) == current or states.contains(Atspi.StateType.FOCUSED):
                said.append("foc")
            if states.contains(Atspi.StateType.SELECTED):
                said.append("sel")
            yield address(row, column), texts.get((row, column), ""), (x, y, w, h), said
