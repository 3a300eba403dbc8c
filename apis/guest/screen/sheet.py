"""The cells of a spreadsheet, from the accessibility bus.

Invariant: at most `ROWS_MAX` x `COLUMNS_MAX` cells are looked at, however large the sheet. A table of LibreOffice has
2^34 children, so cells are asked for by row and column and never enumerated.

Each cell costs two calls over the bus. So the application's functions tell all texts at once where they answer, and the
bus tells the same texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gi
from guest.addresses import Place, address, chosen, filled, place_of, range_of

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

ROWS_MAX, COLUMNS_MAX = 64, 32
_EDGE = 3  # pixels inside the corner of a table at which its outermost cell is asked for

Box = tuple[int, int, int, int]  # x, y, width, height
Known = Callable[[Place, Place], dict[Place, str] | None]


class Sheet:
    """One table of LibreOffice Calc. Raises GLib.Error from everywhere when the application does not answer."""

    def __init__(self, table: Any) -> None:
        self._table = table
        box = table.get_extents(Atspi.CoordType.SCREEN)
        self._box: Box = (box.x, box.y, box.width, box.height)

    def _cell(self, row: int, column: int) -> Any:
        cell = Atspi.Table.get_accessible_at(self._table, row, column)
        if cell is None:  # of a table that is just being closed
            raise GLib.Error(f"no cell in row {row}, column {column}")
        return cell

    def _at(self, x: int, y: int, otherwise: Place) -> Place:
        cell = Atspi.Component.get_accessible_at_point(self._table, x, y, Atspi.CoordType.SCREEN)
        return (place_of(cell.get_name() or "") if cell is not None else None) or otherwise

    def _corners(self) -> tuple[Place, Place]:
        """The first and the last cell that shows, within the bounds of this module."""
        x, y, w, h = self._box
        first = self._at(x + _EDGE, y + _EDGE, (0, 0))
        last = self._at(x + w - _EDGE, y + h - _EDGE, (first[0] + ROWS_MAX, first[1] + COLUMNS_MAX))
        return first, (min(last[0], first[0] + ROWS_MAX - 1), min(last[1], first[1] + COLUMNS_MAX - 1))

    def _text(self, row: int, column: int) -> str:
        return str(Atspi.Text.get_text(self._cell(row, column), 0, -1))  # the application bounds a cell's length

    def _texts(self, first: Place, last: Place, known: Known, until: float) -> dict[Place, str]:
        """What the cells show: as the application's own functions tell it, where they speak of this very table."""
        texts = known(first, last)
        if texts is not None and all(self._text(*place) == texts[place] for place in list(texts)[:1]):
            return texts
        return filled(first, last, self._text, lambda: time.monotonic() > until)

    def cells(self, now: str, known: Known, until: float) -> Iterator[tuple[str, str, Box, list[str]]]:
        """Name, shown text, box and states of each cell that is said.

        `now` is the Name Box's text: the current cell or the selected range; `known` tells what the filled cells of a
        range show, or None where it can't; `until` is a moment of the monotonic clock.
        """
        first, last = self._corners()
        texts = self._texts(first, last, known, until)
        current, selected = place_of(now.partition(":")[0]), range_of(now)
        rows, columns = range(first[0], last[0] + 1), range(first[1], last[1] + 1)
        said = chosen(texts, list(rows), list(columns), current)
        # Heights by the last column and widths by the last row: titles that span several cells stand at the start.
        heights = {row: self._extents(row, last[1]) for row in {row for row, _ in said}}
        widths = {column: self._extents(last[0], column) for column in {column for _, column in said}}
        for row, column in said:
            y, h, x, w = heights[row].y, heights[row].height, widths[column].x, widths[column].width
            states = ["sen", "edt"]
            if (row, column) == current:
                states.append("foc")
            if selected and selected[0][0] <= row <= selected[1][0] and selected[0][1] <= column <= selected[1][1]:
                states.append("sel")
            if w > 0 and h > 0:  # else its row or column is hidden
                yield address(row, column), texts.get((row, column), ""), (x, y, w, h), states

    def _extents(self, row: int, column: int) -> Any:
        return self._cell(row, column).get_extents(Atspi.CoordType.SCREEN)
