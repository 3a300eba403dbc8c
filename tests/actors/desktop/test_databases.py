"""Databases of a hostile guest: what is read of a good one, and that every other file is refused by name."""

from __future__ import annotations

import sqlite3

import pytest

from actors.desktop.files import worker as forked
from actors.desktop.files.read_home import FileSeen, ReadLimits, as_wanted
from actors.desktop.pool.leased import view_of
from apis.documents.read import RefusedError
from apis.documents.read.bounds import Bounds
from apis.tasks.verify.verify import GUEST_HOME, Database, TableRows, WantedFile


def made(*lines: str) -> bytes:
    opened = sqlite3.connect(":memory:")
    for line in lines:
        opened.execute(line)
    opened.commit()
    return opened.serialize()


GOOD = made(
    "create table one(a, b)",
    "insert into one values (1, 'x'), (2.5, x'00'), (9e999, null)",
    "create view two as select * from one",
    "create virtual table three using fts5(a)",
)


async def test_the_worker_reads_tables_and_refuses_other_files() -> None:
    late = GOOD[:18] + b"\2\2" + GOOD[20:]  # as left by a program that keeps changes in a second file first
    wanted = [WantedFile(name, "database") for name in ("a", "b", "c")]
    seen = [FileSeen(path=want.path, data=data) for want, data in zip(wanted, (GOOD, late, b"x"), strict=True)]
    read, again, refused = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, seen, ReadLimits()))
    assert read.database is not None
    assert read.database.tables["one"] == TableRows(("a", "b"), ((1, "x"), (2.5, None), (None, None)))
    assert "two" not in read.database.tables
    assert "three" not in read.database.tables
    assert again.database == read.database
    assert (refused.kind, refused.reason) == ("refused", "not_a_database")


@pytest.mark.parametrize("cut", [16, 100, 1000, 5000])
def test_a_broken_file_is_refused(cut: int) -> None:
    with pytest.raises(RefusedError, match="not_a_database"):
        forked.parsed(GOOD[:cut], Bounds(), "database")


def test_a_column_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(RefusedError, match="not_a_database"):
        forked.parsed(made("create table one(wxyz)").replace(b"wxyz", b"w\xff\xfez"), Bounds(), "database")


def test_what_is_too_much_is_refused() -> None:
    with pytest.raises(RefusedError, match="too_big"):
        forked.parsed(GOOD, Bounds(elements=4), "database")
    endless = made("create table a(x, y as (printf('%.*c', 900000, 'x')))", "insert into a(x) values (1), (2), (3)")
    with pytest.raises(RefusedError, match="too_big"):
        forked.parsed(endless, Bounds(chars=1 << 20), "database")


def test_columns_are_chosen_by_their_names() -> None:
    found = Database({"a": TableRows(("x", "y"), ((1, 2),))})
    assert found.rows("a", "y", "x") == [[2, 1]]
    assert found.rows("a", "z") is found.rows("b") is None
