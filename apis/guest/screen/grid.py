"""Which cells of a spreadsheet are said, and what they are called.

Invariant: pure, and never more than `CELLS_MAX` cells.

Said are the cells that show something and, among the empty ones, those within the block of used cells, one row below
it and one column to its right, and the current cell: where a user would go on writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

CELLS_MAX = 240
ROWS_GAP, COLUMNS_GAP = 5, 4  # empty ones after filled ones, after which no more is looked for
TEXT_MAX = 500
LEAST_ROWS, LEAST_COLUMNS = 3, 2  # of a sheet that is empty
_ADDRESS = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})(?::.*)?")

Place = tuple[int, int]  # row, column, from 0


def column_name(column: int) -> str:
    """A, B, ... Z, AA, ... for a column counted from 0."""
    name = ""
    column += 1
    while column:
        column, digit = divmod(column - 1, 26)
        name = chr(65 + digit) + name
    return name


def address(row: int, column: int) -> str:
    """A cell's name, as B3."""
    return f"{column_name(column)}{row + 1}"


def place_of(text: str) -> Place | None:
    """Row and column of a cell's name or of a range's first cell; None for anything else."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    column = 0
    for letter in found[1]:
        column = column * 26 + ord(letter) - 64
    return int(found[2]) - 1, column - 1


def range_of(text: str) -> tuple[Place, Place] | None:
    """First and last cell of a range's name, as A1:B3; None for anything else."""
    start, _, end = text.partition(":")
    first, last = place_of(start), place_of(end)
    return (first, last) if first and last else None


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
    """Which of the cells that show are said, in reading order. `texts` holds those that are not empty."""
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
