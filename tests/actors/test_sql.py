"""SQL is a matter of the ledger: no module outside of `actors.replay` holds any, or opens a database.

One module reads what programs of a desktop have left in databases of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.invariants.product_code import ROOT, naming, tree_of

LEDGER = ROOT / "actors" / "replay"
OF_DESKTOPS = ROOT / "apis" / "documents" / "read" / "parse.py"
SQL = re.compile(
    r"\bSELECT\s.+\sFROM\s|\bINSERT\s+(OR\s+\w+\s+)?INTO\s|\bUPDATE\s+\w+\s+SET\s|\bDELETE\s+FROM\s"
    r"|\bCREATE\s+(TABLE|INDEX|VIEW|TRIGGER)\s|\bPRAGMA\s|\bBEGIN\s+(IMMEDIATE|EXCLUSIVE|DEFERRED)|^SELECT\s|^BEGIN;?$",
    re.DOTALL,
)


WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "PRAGMA", "BEGIN", "sqlite3")


def found(path: Path) -> Iterator[str]:
    """SQL and imports of a database in a module."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Constant(value=str(text)) if SQL.search(text):
                yield text
            case ast.Import(names=names) if any(name.name.partition(".")[0] == "sqlite3" for name in names):
                yield "import sqlite3"
            case ast.ImportFrom(module="sqlite3"):
                yield "from sqlite3 import"


@pytest.mark.slow
def test_no_sql_outside_of_the_ledger() -> None:
    others = [path for path in naming(*WORDS) if not path.is_relative_to(LEDGER) and path != OF_DESKTOPS]
    outside = {str(path.relative_to(ROOT)): list(found(path)) for path in others}
    assert {path: sql for path, sql in outside.items() if sql} == {}
    assert list(found(LEDGER / "database" / "queries.py"))


def test_the_ledgers_file_is_named_once() -> None:
    named = naming('"ledger.sqlite"', '/ledger.sqlite"')
    assert [path.name for path in named] == ["ledger_file.py"]
