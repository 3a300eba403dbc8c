"""Spreadsheets and databases of a hostile guest: good ones are read, others refused by name, and none costs much."""

from __future__ import annotations

import datetime
import faulthandler
import io
import os
import sqlite3
import time
import zipfile
from dataclasses import replace
from typing import Any

import openpyxl
import pytest
from hostile import KINDS, packed, xlsx, xlsx_parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.styles import Font, PatternFill

from actors.desktop.files import worker as forked
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal, as_wanted
from actors.desktop.pool.leased import view_of
from apis.documents.read import RefusedError
from apis.documents.read.bounds import Bounds
from apis.documents.read.parse import PARSERS, workbook
from apis.tasks.verify.verify import GUEST_HOME, Database, SheetCell, TableRows, WantedFile

SMALL = Bounds(
    members=20, member_bytes=20_000, unpacked_bytes=40_000, ratio=50, ratio_from=5000, depth=10, elements=500,
    sheets=3, cells=50, cell_chars=200, chars=1000,
)  # fmt: skip
PLACED = {"A1": "text", "B1": 2.5, "C1": True, "D1": "#N/A", "A2": datetime.datetime(2024, 3, 1, 12),
          "B2": datetime.time(8, 30, 1), "C2": datetime.timedelta(hours=30)}  # fmt: skip
FOUND = {
    "A1": SheetCell("text"), "B1": SheetCell(2.5), "C1": SheetCell(True), "D1": SheetCell("#N/A"),
    "A2": SheetCell(45352.5, "date"), "B2": SheetCell("08:30:01", "time"), "C2": SheetCell(108_000_000.0, "span"),
}  # fmt: skip


def good() -> bytes:
    """A workbook of two sheets, by openpyxl."""
    made, out = openpyxl.Workbook(), io.BytesIO()
    for place, value in PLACED.items():
        made.active[place] = value
        made.active[place].font = Font(color=None)
    made.active["XFD9"].fill = PatternFill("solid", fgColor="FFFFFF00")
    made.create_sheet("Zwei")["A1"] = "=1+1"
    made.save(out)
    return out.getvalue()


async def test_the_worker_reads_cells_with_their_kinds_and_colours() -> None:
    wanted = [WantedFile("a", "workbook"), WantedFile("b", "workbook")]
    seen = [FileSeen(path=want.path, data=data) for want, data in zip(wanted, (good(), b"x"), strict=True)]
    read, refused = await as_wanted(wanted, seen, ReadLimits())
    assert read.workbook is not None
    first, second = read.workbook.sheets
    assert {place: first.cells[place] for place in FOUND} == FOUND
    assert (first.cells["XFD9"].fill, second.name, second.cells) == ("FFFFFF00", "Zwei", {})
    assert refused.refusal is ReadRefusal.NOT_A_WORKBOOK


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_file_is_refused_by_name(kind: str):
    wanted, make = KINDS[kind]
    data = make()
    began = time.process_time()
    with pytest.raises(RefusedError) as refused:
        workbook(data, Bounds())
    assert str(refused.value) == ReadRefusal(wanted)
    assert time.process_time() - began < Bounds().cpu_s


def test_a_cell_beyond_the_sheet_is_not_waited_for() -> None:
    began = time.process_time()
    far = workbook(xlsx('<row r="999999999"><c r="A999999999"><v>1</v></c></row>'), Bounds())
    assert far["sheets"][0]["cells"] == {}
    assert time.process_time() - began < Bounds().cpu_s


def test_parts_with_other_capitals_than_their_names_in_others_are_read_and_pictures_are_not() -> None:
    row = '<row r="1"><c r="A1" t="s"><v>0</v></c></row>'
    parts = xlsx_parts(row, "<si><t>x</t></si>")
    named = {name.replace("xl/", "XL/").replace("shared", "Shared"): part for name, part in parts.items()}
    pictures = {f"xl/media/image{n}.png": os.urandom(1 << 20) for n in range(70)}
    named["xl/drawings/drawing.vml"] = "<xml><br></xml>"
    (sheet,) = workbook(packed({**named, **pictures}, zipfile.ZIP_STORED), Bounds())["sheets"]
    assert sheet["cells"]["A1"]["value"] == "x"


_ROW = '<row r="1"><c r="A1" t="s"><v>0</v></c><c><f>1+1</f><v>2</v></c></row>'
GOOD = [packed(xlsx_parts(_ROW, "<si><t>x</t></si>"), method) for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)]
WORDS = [b"<a>", b"</a>", b"<!DOCTYPE a>", b'="9"', b"&#x1;", b"&x;", b"PK\x01\x02", b"PK\x05\x06", b"\xff" * 4]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good file with some bytes replaced, put in or cut out; stored ones get broken XML, not only broken archives."""
    data = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.binary(max_size=4) | st.sampled_from(WORDS))
        data[at : at + draw(st.sampled_from([0, len(piece), 1, 30]))] = piece
    return bytes(data)


@st.composite
def sheets(draw: st.DrawFn) -> bytes:
    """Well-formed archives around arbitrary markup of the words that openpyxl knows."""
    depth, out = [], []
    for _ in range(draw(st.integers(0, 40))):
        move = draw(st.integers(0, 3))
        if move == 0 and depth:
            out.append(f"</{depth.pop()}>")
        elif move == 1:
            out.append(draw(st.text(st.characters(exclude_categories=["C"], exclude_characters="<&"), max_size=9)))
        else:
            depth.append(draw(st.sampled_from(["row", "c", "v", "f", "is", "t", "rPh"])))
            keys = draw(st.lists(st.sampled_from(["r", "t", "s"]), unique=True, max_size=2))
            values = st.sampled_from(["A1", "B0", "s", "b", "d", "str", "5", "-1", "0", "99999999", "", "٣"])
            said = "".join(f' {key}="{draw(values)}"' for key in keys)
            out.append(f"<{depth[-1]}{said}>")
    return xlsx("".join(out) + "".join(f"</{name}>" for name in reversed(depth)), "<si><t>x</t></si>")


def attempt(data: bytes) -> tuple[list[dict[str, Any]], str]:
    try:
        return workbook(data, SMALL)["sheets"], ""
    except RefusedError as refused:
        return [], str(refused)


@pytest.mark.slow
@settings(max_examples=100, deadline=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | mutated() | sheets())
def test_any_bytes_get_a_bounded_answer_or_a_refusal(data: bytes):
    found, refusal = attempt(data)
    assert not refusal or ReadRefusal(refusal)
    assert len(found) <= SMALL.sheets
    cells = [cell["value"] for sheet in found for cell in sheet["cells"].values()]
    lengths = [len(value) for value in cells if isinstance(value, str)]
    assert len(cells) <= SMALL.cells
    assert max(lengths, default=0) <= SMALL.cell_chars
    assert sum(lengths) <= SMALL.chars


@pytest.mark.slow
def test_what_a_file_costs_is_the_kernels_to_bound(monkeypatch: pytest.MonkeyPatch):
    data, bounds = xlsx('<row r="1"><c r="A1"><v>1</v></c></row>'), Bounds(cpu_s=1)
    assert b'"A1": ' in forked.parsed(data, bounds)

    def spins(*_: object) -> None:
        while True:
            pass

    def eats(*_: object) -> list[bytes]:
        return [bytes(1 << 24) for _ in range(1 << 12)]

    def says_much(*_: object) -> str:
        return "x" * 1000

    for parser, wanted in ((spins, "too_slow"), (eats, "too_big"), (says_much, "too_big")):
        monkeypatch.setitem(PARSERS, "workbook", parser)
        with pytest.raises(RefusedError, match=wanted):
            forked.parsed(data, replace(bounds, answer_bytes=500))


def test_a_parser_that_breaks_refuses_and_one_that_is_killed_or_lacks_its_package_does_not(
    monkeypatch: pytest.MonkeyPatch,
):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    def lacking(*_: object) -> None:
        raise ModuleNotFoundError("openpyxl")

    def ended_by(number: int) -> Any:
        def parser(*_: object) -> None:
            faulthandler.disable()
            os.kill(os.getpid(), number)

        return parser

    for parser in (broken, ended_by(11)):
        monkeypatch.setitem(PARSERS, "workbook", parser)
        with pytest.raises(RefusedError, match="broke_reader"):
            forked.parsed(b"", Bounds())
    for parser, why in ((ended_by(9), "signal 9"), (lacking, "openpyxl")):
        monkeypatch.setitem(PARSERS, "workbook", parser)
        with pytest.raises(forked.ChildLostError, match=why):
            forked.parsed(b"", Bounds())


def made(*lines: str) -> bytes:
    opened = sqlite3.connect(":memory:")
    for line in lines:
        opened.execute(line)
    opened.commit()
    return opened.serialize()


DATABASE = made(
    "create table one(a, b)",
    "insert into one values (1, 'x'), (2.5, x'00'), (9e999, null)",
    "create view two as select * from one",
    "create virtual table three using fts5(a)",
)


async def test_the_worker_reads_tables_and_refuses_other_files() -> None:
    late = DATABASE[:18] + b"\2\2" + DATABASE[20:]  # as left by a program that keeps changes in a second file first
    wanted = [WantedFile(name, "database") for name in ("a", "b", "c")]
    seen = [FileSeen(path=want.path, data=data) for want, data in zip(wanted, (DATABASE, late, b"x"), strict=True)]
    read, again, refused = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, seen, ReadLimits()))
    assert read.database is not None
    assert read.database.tables["one"] == TableRows(("a", "b"), ((1, "x"), (2.5, None), (None, None)))
    assert "two" not in read.database.tables
    assert "three" not in read.database.tables
    assert again.database == read.database
    assert (refused.kind, refused.reason) == ("refused", "not_a_database")


def test_a_broken_database_and_one_of_too_much_are_refused() -> None:
    nameless = made("create table one(wxyz)").replace(b"wxyz", b"w\xff\xfez")  # a column whose name is no text
    for broken in (DATABASE[:16], DATABASE[:100], DATABASE[:5000], nameless):
        with pytest.raises(RefusedError, match="not_a_database"):
            forked.parsed(broken, Bounds(), "database")
    with pytest.raises(RefusedError, match="too_big"):
        forked.parsed(DATABASE, Bounds(elements=4), "database")
    endless = made("create table a(x, y as (printf('%.*c', 900000, 'x')))", "insert into a(x) values (1), (2), (3)")
    with pytest.raises(RefusedError, match="too_big"):
        forked.parsed(endless, Bounds(chars=1 << 20), "database")


def test_columns_are_chosen_by_their_names() -> None:
    found = Database({"a": TableRows(("x", "y"), ((1, 2),))})
    assert found.rows("a", "y", "x") == [[2, 1]]
    assert found.rows("a", "z") is found.rows("b") is None
