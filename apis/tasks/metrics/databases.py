"""Metrics of other programs' databases: what a browser remembers, what Thunderbird has indexed.

Invariant: the policy's file is never opened as a database here. A task's own SQL asks a copy of the values in it. SQL
that is wrong by itself is the task's fault, whatever the policy left.
"""

from __future__ import annotations

import sqlite3

from apis.tasks.metrics.metric import Declared, Options, Score, Value, document, is_
from apis.tasks.verify.database import Database

_STEPS = 20_000_000  # of SQLite's machine, which one question may take
_EVERY = 1_000_000
_MOST = 100_000  # pages of a history


def run_sqlite3(result: Value, expected: Value, _: Options) -> Score:
    """The number that the task's `sql`, one statement, finds, at most 1."""
    _refuse_wrong(expected["sql"])
    found: Database = document(result, "database")
    copy = sqlite3.connect(":memory:")
    left = iter(range(_STEPS // _EVERY))
    try:
        for name, table in found.tables.items():
            columns = ", ".join(_quoted(column) for column in table.columns)
            # A name can be no parameter of SQL, and each is quoted.
            copy.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
            places = ", ".join("?" * len(table.columns))
            copy.executemany(f"INSERT INTO {_quoted(name)} VALUES ({places})", table.rows)  # noqa: S608 - as above
        copy.set_progress_handler(lambda: next(left, None) is None, _EVERY)
        (number,) = copy.execute(expected["sql"]).fetchone() or (0,)
    except sqlite3.Error as error:
        return Score(0.0, f"it can't be asked: {str(error)[:80]}")
    finally:
        copy.close()
    score = min(1.0, max(0.0, float(number or 0)))
    return Score(score, f"the database says {number}")


def _refuse_wrong(sql: str) -> None:
    """Raise LookupError for what is not one statement of SQL. Which tables there are is not known yet."""
    stops = (at for at, char in enumerate(sql, 1) if char == ";" and sqlite3.complete_statement(sql[:at]))
    end = next(stops, len(sql))
    empty = sqlite3.connect(":memory:")
    try:
        empty.execute(f"SELECT 1;{sql[end:]}")  # comments alone may follow; a missing table would hide a statement
        empty.execute(f"EXPLAIN {sql[:end]}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        if not str(error).startswith("no such table"):
            raise LookupError(f"the task's SQL: {error}") from None
    finally:
        empty.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def check_history_deleted(result: Value, expected: Value, _: Options) -> Score:
    """No page's address in the history has one of `keywords`."""
    if not isinstance(result, list) or expected["type"] != "keywords":
        return Score(0.0, "there is no history")
    rows = result[:_MOST]
    if not all(isinstance(row, list | tuple) and row for row in rows):
        return Score(0.0, "a page can't be read")
    pages = [str(row[0]) for row in rows]
    left = [word for word in expected["keywords"] if any(word in page for page in pages)]
    return is_(not left, "none is left", f"pages with {left[:1]} are left")


DECLARED = (
    Declared("run_sqlite3", run_sqlite3, reads="database"),
    Declared("check_history_deleted", check_history_deleted, types=frozenset(("keywords",))),
)
