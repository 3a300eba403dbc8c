"""SQL is a matter of the ledger: no module outside of `actors.replay` holds any, or opens a database.

Two modules read what programs of a desktop have left in databases of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
LEDGER = TOP / "actors" / "replay"
OF_DESKTOPS = {
    TOP / part
    for part in (
        "apis/documents/read/parse.py",
        "apis/guest/chromium/profile.py",
    )
}
SQL = re.compile(
    r"\bSELECT\s.+\sFROM\s|\bINSERT\s+(OR\s+\w+\s+)?INTO\s|\bUPDATE\s+\w+\s+SET\s|\bDELETE\s+FROM\s"
    r"|\bCREATE\s+(TABLE|INDEX|VIEW|TRIGGER)\s|\bPRAGMA\s|\bBEGIN\s+(IMMEDIATE|EXCLUSIVE|DEFERRED)|^SELECT\s|^BEGIN;?$",
    re.DOTALL,
)


WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "PRAGMA", "BEGIN", "sqlite3")


def found(source: str) -> Iterator[str]:
    """SQL and imports of a database in a module's `source`, which is parsed only where it has one of the words."""
    if not any(word in source for word in WORDS):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if SQL.search(text):
                yield text
            case ast.Import(names=names) if any(name.name.partition(".")[0] == "sqlite3" for name in names):
                yield "import sqlite3"
            case ast.ImportFrom(module="sqlite3"):
                yield "from sqlite3 import"


def modules() -> list[Path]:
    return [path for part in ("actors", "apis", "policy", "runtime") for path in (TOP / part).rglob("*.py")]


@pytest.mark.slow
def test_no_sql_outside_of_the_ledger() -> None:
    others = [path for path in modules() if not path.is_relative_to(LEDGER) and path not in OF_DESKTOPS]
    outside = {path: list(found(path.read_text())) for path in others}
    assert len(outside) > 300
    assert {str(path.relative_to(TOP)): sql for path, sql in outside.items() if sql} == {}


def test_the_ledgers_file_is_named_once() -> None:
    named = [
        path
        for path in modules()
        if any(quoted in path.read_text() for quoted in ('"ledger.sqlite"', '/ledger.sqlite"'))
    ]
    assert [path.name for path in named] == ["ledger_file.py"]
