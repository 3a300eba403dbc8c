"""What another program's database holds. Invariant: values only."""

from __future__ import annotations

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
