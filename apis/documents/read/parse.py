"""The parsers of hostile files by kind: SQLite databases, workbooks, and what LibreOffice made of a document.

Invariant: for any bytes the answer is a bounded value or RefusedError. Where memory is bounded it may be MemoryError.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from typing import Any

from apis.documents.read import office
from apis.documents.read import workbook as cells
from apis.documents.read.bounds import Bounds, Budget, RefusedError

_TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_VALUE_BYTES = 1 << 20
_HEAD, _JOURNALS = b"SQLite format 3\0", slice(18, 20)  # the latter say whether changes go to a second file first


def database(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The tables of another program's SQLite file, as `apis.tasks.verify.verify.Database` has them.

    Nothing that the file's schema defines runs but its columns; what is no table is left out. What another file next
    to this one holds, as changes not yet written back, is not seen. Raises RefusedError.
    """
    budget = Budget(bounds)
    if not data.startswith(_HEAD):
        raise RefusedError("not_a_database")
    plain = bytearray(data)
    plain[_JOURNALS] = b"\1\1"
    opened = sqlite3.connect(":memory:")
    try:
        opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(len(plain), _VALUE_BYTES))
        opened.deserialize(bytes(plain))
        opened.text_factory = lambda text: text.decode("utf-8", "replace")
        opened.execute("PRAGMA trusted_schema = OFF")
        named = [name for name, sql in opened.execute(_TABLES) if not _virtual(sql)]
        return {"tables": {str(name): _table(opened, str(name), budget) for name in named}}
    except (sqlite3.Error, OverflowError, ValueError):  # the last of a column whose name is no UTF-8
        raise RefusedError("not_a_database") from None
    finally:
        opened.close()


def _virtual(sql: object) -> bool:
    return not isinstance(sql, str) or sql.split()[:2] != ["CREATE", "TABLE"]


def _table(opened: sqlite3.Connection, name: str, budget: Budget) -> dict[str, Any]:
    quoted = name.replace('"', '""')
    found = opened.execute(f'SELECT * FROM "{quoted}"')  # noqa: S608 - a name can be no parameter, and it is quoted
    rows = []
    for row in found:
        budget.spend("elements", len(row) + 1)
        budget.spend("chars", sum(len(value) for value in row if isinstance(value, str)))
        rows.append([_plain(value) for value in row])
    return {"columns": [column[0] for column in found.description], "rows": rows}


def _plain(value: Any) -> str | int | float | None:
    if isinstance(value, bytes) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    plain: str | int | float | None = value
    return plain


def workbook(data: bytes, bounds: Bounds) -> dict[str, Any]:
    """The workbook as `apis.tasks.verify.verify.Workbook` has it. Raises RefusedError."""
    return cells.read(data, Budget(bounds))


PARSERS: dict[str, Callable[[bytes, Bounds], dict[str, Any]]] = {  # by the kinds of `apis.tasks.verify.verify.KINDS`
    "database": database,
    "workbook": workbook,
    "office": office.read,
}
PACKAGES = {"workbook": "openpyxl"}  # what a kind's parser loads: a process that forks may load it before
