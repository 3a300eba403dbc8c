"""The tables of another program's SQLite file.

Invariant: values only. Nothing that the file's schema defines runs but its columns; what is no table is left out.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

from apis.documents.read.bounds import Budget, RefusedError

_TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
_VALUE_BYTES = 1 << 20
_HEAD, _JOURNALS = b"SQLite format 3\0", slice(18, 20)  # the latter say whether changes go to a second file first


def read(data: bytes, budget: Budget) -> dict[str, Any]:
    """Each table by its name: columns, and rows of texts and numbers; None stands for what is neither.

    What another file beside this one holds, as changes not yet written back, is not seen. Raises RefusedError.
    """
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
