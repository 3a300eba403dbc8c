"""The cells that a reader has found so far, within bounds.

Invariant: no more cells and characters are kept than the bounds allow, so what is answered is bounded too.
"""

from __future__ import annotations

import math
import re
from typing import Any

from apis.documents.read.bounds import Budget, RefusedError
from apis.guest import addresses
from apis.guest.addresses import COLUMNS, ROWS

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_NUMBER_CHARS = 64

Value = str | float | bool


def address(row: int, column: int) -> str:
    """The address of a cell; both count from 0. Beyond the largest sheet there is none: RefusedError."""
    if row >= ROWS or column >= COLUMNS:
        raise RefusedError("too_big")
    return addresses.address(row, column)


def place(text: str) -> tuple[int, int]:
    """Row and column of an address, counted from 0. Raises RefusedError for what is none."""
    found = addresses.place_of(text)
    if found is None:
        raise RefusedError("not_a_workbook")
    return found


def number(text: str) -> float | None:
    """A finite decimal number, or None."""
    text = text.strip()
    if len(text) > _NUMBER_CHARS or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def count(text: str | None, most: int) -> int:
    """A whole number from 1 to `most`, 1 where there is none. Raises RefusedError for anything else."""
    if text is None:
        return 1
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RefusedError("not_a_workbook")
    value = int(text)
    if value > most:
        raise RefusedError("too_big")
    return max(value, 1)


class CellText:
    """Characters of one cell, collected from pieces."""

    def __init__(self, most: int) -> None:
        self._pieces: list[str] = []
        self._most = most
        self._size = 0

    def add(self, piece: str) -> None:
        """One more piece. Raises RefusedError when it gets too long."""
        self._size += len(piece)
        if self._size > self._most:
            raise RefusedError("too_big")
        self._pieces.append(piece)

    def take(self) -> str:
        """All of it; then it is empty."""
        text = "".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return text


class Grid:
    """One sheet in the making."""

    def __init__(self, name: str, budget: Budget, *, hidden: bool = False) -> None:
        budget.spend("chars", len(name))
        self.name = name
        self.hidden = hidden
        self._budget = budget
        self._cells: dict[str, Value] = {}
        self._formulas: dict[str, str] = {}

    def put(self, row: int, column: int, value: Value | None, formula: str | None) -> None:
        """A cell; None for no formula or no value, which an empty text is too. A place taken twice refuses the file."""
        if value in (None, "") and formula is None:
            return
        where = address(row, column)
        if where in self._cells or where in self._formulas:
            raise RefusedError("not_a_workbook")
        self._budget.spend("cells")
        if value is not None and value != "":
            self._budget.spend("chars", len(value) if isinstance(value, str) else 0)
            self._cells[where] = value
        if formula is not None:
            self._budget.spend("chars", len(formula))
            self._formulas[where] = formula

    def answer(self) -> dict[str, Any]:
        """As `apis.tasks.verify.verify.Sheet` has it."""
        return {"name": self.name, "cells": self._cells, "formulas": self._formulas, "hidden": self.hidden}
