"""Spreadsheet files of a hostile guest: good ones are read, the others refused by name, and none costs much."""

from __future__ import annotations

import faulthandler
import os
import time
import zipfile
from dataclasses import replace
from typing import Any

import pytest
from hostile import KINDS, ods, ods_parts, packed, xlsx, xlsx_parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.desktop.files import fork as forked
from actors.desktop.files.read_home import ReadRefusal
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.read.parse import workbook

SMALL = Bounds(
    members=20, member_bytes=20_000, unpacked_bytes=40_000, ratio=50, ratio_from=5000, depth=10, elements=500,
    sheets=3, cells=50, cell_chars=200, chars=1000,
)  # fmt: skip


def only(data: bytes) -> dict[str, Any]:
    (sheet,) = workbook(data, Bounds())["sheets"]
    return dict(sheet)


def test_every_kind_of_cell_of_an_xlsx():
    rows = """<row r="2"><c r="B2"><v>42.50</v></c><c t="s"><v>1</v></c><c r="E2" t="b"><v>1</v></c></row>
        <row><c t="inlineStr"><is><t>in</t><rPh><t>no</t></rPh><r><t> line</t></r></is></c><c t="e"><v>#DIV/0!</v></c>
        <c><f>SUM(A1:B2)</f><v>1e3</v></c><c t="str"><f>"a"</f><v>a_x0041_</v></c><c><f t="shared" si="0"/><v>7</v></c>
        <c/><c><v></v></c><c><v>1e999</v></c></row>"""
    sheet = only(xlsx(rows, "<si><t>no</t></si><si><r><t>rich </t></r><r><t>text</t></r></si>"))
    assert sheet["cells"] == {
        "B2": 42.5, "C2": "rich text", "E2": True, "A3": "in line", "B3": "#DIV/0!", "C3": 1000.0, "D3": "aA",
        "E3": 7.0, "H3": "1e999",
    }  # fmt: skip
    assert sheet["formulas"] == {"C3": "=SUM(A1:B2)", "D3": '="a"', "E3": ""}


def test_every_kind_of_cell_of_an_ods():
    table = """<table:table-column/><table:table-row table:number-rows-repeated="1048000"/>
        <table:table-row table:number-rows-repeated="2"><table:table-cell table:number-columns-repeated="2"/>
        <table:table-cell office:value-type="float" office:value="2" table:number-columns-repeated="2"/>
        <table:covered-table-cell office:value-type="string"><text:p>a<text:s text:c="2"/>b</text:p><text:p>c</text:p>
        <office:annotation><text:p>note</text:p></office:annotation></table:covered-table-cell>
        <table:table-cell office:value-type="boolean" office:boolean-value="true"/>
        <table:table-cell table:formula="of:=1/0" office:value-type="string" office:string-value="">
        <text:p>#DIV/0!</text:p></table:table-cell>
        <table:table-cell table:number-columns-repeated="16377"/></table:table-row>"""
    sheet = only(ods(table))
    row = {"C": 2.0, "D": 2.0, "E": "a  b\nc", "F": True, "G": "#DIV/0!"}
    assert sheet["cells"] == {f"{column}{n}": value for n in (1048001, 1048002) for column, value in row.items()}
    assert sheet["formulas"] == {"G1048001": "=1/0", "G1048002": "=1/0"}


def test_sheets_keep_their_order_and_hidden_ones_are_marked():
    parts = xlsx_parts("", names=("Zwei", "Eins"))
    assert isinstance(parts["xl/workbook.xml"], str)
    parts["xl/workbook.xml"] = parts["xl/workbook.xml"].replace('name="Eins"', 'name="Eins" state="veryHidden"')
    sheets = workbook(packed(parts), Bounds())["sheets"]
    assert [(sheet["name"], sheet["hidden"]) for sheet in sheets] == [("Zwei", False), ("Eins", True)]


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


_ROW = '<row r="1"><c r="A1" t="s"><v>0</v></c><c><f>1+1</f><v>2</v></c></row>'
_CELL = '<table:table-cell table:number-columns-repeated="3"><text:p>x</text:p></table:table-cell>'
GOOD = [
    packed(parts, method)
    for parts in (xlsx_parts(_ROW, "<si><t>x</t></si>"), ods_parts(f"<table:table-row>{_CELL}</table:table-row>"))
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)
]
WORDS = [
    b"<a>",
    b"</a>",
    b"<!DOCTYPE a>",
    b'="9"',
    b"&#x1;",
    b"&x;",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"\xff" * 4,
    b"\0" * 4,
]


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
    """Well-formed archives around arbitrary markup of the words that the readers know."""
    names = [
        "row",
        "c",
        "v",
        "f",
        "is",
        "t",
        "rPh",
        "table:table-row",
        "table:table-cell",
        "table:table",
        "text:p",
        "text:s",
    ]
    keys = ["r", "t", "table:number-rows-repeated", "table:number-columns-repeated", "office:value-type", "text:c"]
    values = ["A1", "B0", "s", "b", "float", "string", "5", "-1", "0", "99999999", "1048576", "", "٣"]
    depth, out = [], []
    for _ in range(draw(st.integers(0, 40))):
        move = draw(st.integers(0, 3))
        if move == 0 and depth:
            out.append(f"</{depth.pop()}>")
        elif move == 1:
            out.append(draw(st.text(st.characters(exclude_categories=["C"], exclude_characters="<&"), max_size=9)))
        else:
            depth.append(draw(st.sampled_from(names)))
            given_keys = draw(st.lists(st.sampled_from(keys), unique=True, max_size=2))
            said = "".join(f' {key}="{draw(st.sampled_from(values))}"' for key in given_keys)
            out.append(f"<{depth[-1]}{said}>")
    markup = "".join(out) + "".join(f"</{name}>" for name in reversed(depth))
    return ods(markup) if draw(st.booleans()) else xlsx(markup.replace(":", "-"), "<si><t>x</t></si>")


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
    if refusal:
        assert ReadRefusal(refusal)
        return
    assert 1 <= len(found) <= SMALL.sheets
    filled = [place for sheet in found for place in {**sheet["cells"], **sheet["formulas"]}]
    texts = [text for sheet in found for text in (*sheet["cells"].values(), *sheet["formulas"].values())]
    lengths = [len(text) for text in texts if isinstance(text, str)]
    assert len(filled) <= SMALL.cells
    assert max(lengths, default=0) <= SMALL.cell_chars
    assert sum(lengths) <= SMALL.chars


@pytest.mark.slow
def test_what_a_file_costs_is_the_kernels_to_bound(monkeypatch: pytest.MonkeyPatch):
    good, bounds = xlsx('<row r="1"><c r="A1"><v>1</v></c></row>'), Bounds(cpu_s=1)
    assert b'"A1": 1.0' in forked.parsed(good, bounds)

    def spins(*_: object) -> None:
        while True:
            pass

    def eats(*_: object) -> list[bytes]:
        return [bytes(1 << 24) for _ in range(1 << 12)]

    def says_much(*_: object) -> str:
        return "x" * 1000

    for parser, wanted in ((spins, "too_slow"), (eats, "too_big"), (says_much, "too_big")):
        monkeypatch.setitem(forked.PARSERS, "workbook", parser)
        with pytest.raises(RefusedError, match=wanted):
            forked.parsed(good, replace(bounds, answer_bytes=500))


def test_a_parser_that_breaks_refuses_and_one_that_is_killed_does_not(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    def ended_by(number: int) -> Any:
        def parser(*_: object) -> None:
            faulthandler.disable()
            os.kill(os.getpid(), number)

        return parser

    for parser in (broken, ended_by(11)):
        monkeypatch.setitem(forked.PARSERS, "workbook", parser)
        with pytest.raises(RefusedError, match="broke_reader"):
            forked.parsed(b"", Bounds())
    monkeypatch.setitem(forked.PARSERS, "workbook", ended_by(9))
    with pytest.raises(forked.ChildLostError, match="signal 9"):
        forked.parsed(b"", Bounds())
