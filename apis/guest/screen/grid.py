"""Which cells of a spreadsheet are said.

Invariant: pure, and never more than `CELLS_MAX` cells.

Cells that show something are said, and the current cell. Empty cells are said within the block of used cells, in the
row below it and in the column to its right. There a user would go on writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guest.addresses import Place

CELLS_MAX = 240
ROWS_GAP, COLUMNS_GAP = 5, 4  # empty ones after filled ones, after which no more is looked for
TEXT_MAX = 500
LEAST_ROWS, LEAST_COLUMNS = 3, 2  # of a sheet that is empty


def filled(first: Place, last: Place, text_of: Callable[[int, int], str], late: Callable[[], bool]) -> dict[Place, str]:
    """What the cells show, from the first filled one up to where a row or the sheet stays empty for a while."""
    found: dict[Place, str] = {}
    rightmost, lowest = last[1], last[0]
    for row in range(first[0], last[0] + 1):
        if row > lowest + ROWS_GAP or late():
            break
        column = first[1] - 1
        while (column := column + 1) <= min(last[1], rightmost + COLUMNS_GAP):  # which grows on the way
            text = text_of(row, column)
            if text:
                rightmost, lowest = max(rightmost, column) if found else column, row
                found[row, column] = text[:TEXT_MAX]
    return found


def chosen(texts: dict[Place, str], rows: list[int], columns: list[int], current: Place | None) -> list[Place]:
    """Which of the cells that show are said, in reading order. `texts` holds the cells that are not empty."""
    filled = sorted(texts)[:CELLS_MAX]
    last_row = max((row for row, _ in filled), default=0)
    last_column = max((column for _, column in filled), default=0)
    first_row = min((row for row, _ in filled), default=0)
    first_column = min((column for _, column in filled), default=0)
    if not filled and rows and columns:
        first_row, first_column = rows[0], columns[0]
        last_row, last_column = rows[0] + LEAST_ROWS - 1, columns[0] + LEAST_COLUMNS - 1
    empty = [
        (row, column)
        for row in rows
        if first_row <= row <= last_row + 1
        for column in columns
        if first_column <= column <= last_column + 1 and (row, column) not in texts
    ]
    if current is not None and current not in texts and current not in empty:
        empty += [current] if current[0] in rows and current[1] in columns else []
    if current is not None:
        row, column = current
        empty.sort(key=lambda cell: max(abs(cell[0] - row), abs(cell[1] - column)))
    return sorted([*filled, *empty[: CELLS_MAX - len(filled)]])
