"""The names of a spreadsheet's cells, and which cells an observation has. Rows and columns count from 0.

Cells that show something are observed, and the current cell. Empty cells are observed within the block of used cells
and next to it, where a user would go on writing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guest.addresses import Place

ROWS, COLUMNS = 1 << 20, 1 << 14
_ADDRESS = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})", re.ASCII)

Place = tuple[int, int]  # row, column


def letters(column: int) -> str:
    """A for 0, AA for 26."""
    name, left = "", column + 1
    while left:
        left, digit = divmod(left - 1, 26)
        name = chr(ord("A") + digit) + name
    return name


def column_of(name: str) -> int | None:
    """0 for A, 26 for AA; None for a column beyond XFD. `name` is capital letters."""
    number = 0
    for letter in name:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1 if number <= COLUMNS else None


def address(row: int, column: int) -> str:
    """A cell's name, as B3."""
    return f"{letters(column)}{row + 1}"


def place_of(text: str) -> Place | None:
    """Row and column of a cell's name; None for anything else."""
    parts = _ADDRESS.fullmatch(text)
    if parts is None or (column := column_of(parts[1])) is None or int(parts[2]) > ROWS:
        return None
    return int(parts[2]) - 1, column


def range_of(text: str) -> tuple[Place, Place] | None:
    """First and last cell of a range's name, as A1:B3; None for anything else."""
    start, _, end = text.partition(":")
    first, last = place_of(start), place_of(end)
    return (first, last) if first and last else None


CELLS_MAX = 240
ROWS_GAP, COLUMNS_GAP = 5, 4  # empty ones after filled ones, after which no more is looked for
TEXT_MAX = 500
LEAST_ROWS, LEAST_COLUMNS = 3, 2  # of a sheet that is empty


def filled(first: Place, last: Place, text_of: Callable[[int, int], str], late: Callable[[], bool]) -> dict[Place, str]:
    """What the cells show, from the first filled one up to where a row or the sheet stays empty for a while."""
    texts: dict[Place, str] = {}
    rightmost, lowest = last[1], last[0]
    for row in range(first[0], last[0] + 1):
        if row > lowest + ROWS_GAP or late():
            break
        column = first[1] - 1
        while (column := column + 1) <= min(last[1], rightmost + COLUMNS_GAP):  # which grows on the way
            text = text_of(row, column)
            if text:
                rightmost, lowest = max(rightmost, column) if texts else column, row
                texts[row, column] = text[:TEXT_MAX]
    return texts


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
