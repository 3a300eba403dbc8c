"""What another program's database or workbook holds. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec


class TableRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table: the names of its columns, and rows of as many values; None for what is no text or number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...] = ()


class Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables by their names."""

    tables: dict[str, TableRows] = {}

    def rows(self, table: str, *columns: str) -> list[list[str | int | float | None]] | None:
        """Of a table's rows the values of these columns, in this order; None where one of them is not there."""
        found = self.tables.get(table)
        if found is None or not set(columns) <= set(found.columns):
            return None
        places = [found.columns.index(column) for column in columns]
        return [[row[place] for place in places] for row in found.rows]


class SheetCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell: what a formula came to when the file was saved, and colours as "AARRGGBB" or a theme's number.

    `kind` says what a value stands for: "date" days since 1899-12-30, "time" a time of day as text, "span" a duration
    in milliseconds.
    """

    value: str | float | bool | None = None
    kind: Literal["", "date", "time", "span"] = ""
    font: str = ""
    fill: str = ""


class Sheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sheet: the cells by their addresses ("B3") that hold something or have a colour."""

    name: str
    cells: dict[str, SheetCell]


class Workbook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A spreadsheet file's sheets, in their order. `calculated`: it has no formula, or the result of one."""

    sheets: tuple[Sheet, ...]
    calculated: bool = True
