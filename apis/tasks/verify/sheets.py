"""A workbook's cells.

Invariant: values only. The readers below `apis.documents.read` say where each comes from.
"""

from __future__ import annotations

import msgspec


class Sheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sheet. Keys are addresses ("B3"); an empty cell is absent.

    `cells` holds what a cell shows: a number is a float (a date of an xlsx too), an error its text ("#DIV/0!").
    `formulas` holds the formulas by cell, each with "=" in front, in the words of the file's format; "" where the file
    only points at another cell's formula.
    """

    name: str
    cells: dict[str, str | float | bool]
    formulas: dict[str, str] = {}
    hidden: bool = False


class Workbook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A spreadsheet file's sheets, in their order."""

    sheets: tuple[Sheet, ...]
