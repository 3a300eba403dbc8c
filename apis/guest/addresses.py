"""The names of a spreadsheet's cells.

Invariant: pure. Rows and columns count from 0. A name and its place lead to each other for every cell of the largest
sheet, A1 to XFD1048576. No other text names a cell.
"""

from __future__ import annotations

import re

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
    found = _ADDRESS.fullmatch(text)
    if found is None or (column := column_of(found[1])) is None or int(found[2]) > ROWS:
        return None
    return int(found[2]) - 1, column


def range_of(text: str) -> tuple[Place, Place] | None:
    """First and last cell of a range's name, as A1:B3; None for anything else."""
    start, _, end = text.partition(":")
    first, last = place_of(start), place_of(end)
    return (first, last) if first and last else None
