"""Twins of compare_table by its rules' options, in workbooks whose texts stand in one list as offices write them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apis.tasks.verify.verify import FileView
from tests.apis.twins.general import CELL, DATA, FUZZY, GOLD, UNTOUCHED
from tests.apis.twins.made_books import axis, chart, legend, pivot, shared
from tests.apis.twins.tables import PAIR, check, printed, rule, zoom
from tests.apis.twins.tables import book as looking
from tests.apis.twins.twin import Twin, book


def saved(view: FileView) -> FileView:
    """A workbook as an office writes it."""
    return replace(view, data=shared(view.data))


def said(*rows: list[Any]) -> FileView:
    """A workbook of these rows as an office writes it, which writes no empty text."""
    return saved(book(*([value or None for value in row] for row in rows)))


def _tables(expected: FileView | None, asked: dict[str, Any], right: FileView, *wrong: FileView) -> Twin:
    return Twin("compare_table", expected, {"rules": [asked]}, right, list(wrong))


def fuzzy(*parts: dict[str, Any]) -> dict[str, Any]:
    """A rule of sheet_fuzzy over A1 to A2 for each of `parts`."""
    return {**FUZZY, "rules": [{"range": ["A1:A2"], **part} for part in parts]}


def cell(place: str, method: str, ref: object) -> dict[str, Any]:
    """A rule that looks at one cell's value."""
    return {**CELL, "coordinate": place, "props": {"value": {"method": method, "ref": ref}}}


HEAD, PLACES = ["item", "price"], said(["Oslo, Norway"], ["Rome"])
CITIES = [f"{chr(65 + n)}town" for n in range(21)]
RULE = {"chart_props": ["legend", "xtitle", "ytitle"]}
AXES = axis("cat", "Month"), axis("val", "Sum")


def drawn(*axes: str, at: str = "b", **more: Any) -> FileView:
    """A workbook with a chart that has a legend and these axes."""
    return looking(charts=(chart(more=legend(at), axes=axes, **more),))


def held(*names: str) -> FileView:
    """A workbook with names in column C, below its head."""
    return said(["a", "b", "c"], *(["x", 1, name] for name in names))


TWINS = [
    _tables(
        saved(GOLD),
        DATA,
        said(HEAD, ["tea", 3.50001], ["milk", 2]),
        said(HEAD, ["tea", 3.51], ["milk", 2]),
        said(HEAD, ["teA", 3.5], ["milk", 2]),
        saved(UNTOUCHED),
    ),
    _tables(  # a column of numbers that are written as text
        saved(GOLD),
        DATA,
        said(HEAD, ["tea", "3.5"], ["milk", "2"]),
        said(HEAD, ["tea", "3.5"], ["milk", "two"]),
        said(HEAD, ["tea", "3,5"], ["milk", "2"]),
        saved(UNTOUCHED),
    ),
    _tables(
        saved(GOLD),
        DATA | {"precision": 1},
        said(HEAD, ["tea", 3.54], ["milk", 2.04]),
        said(HEAD, ["tea", 3.56], ["milk", 2]),
        said(HEAD, ["tea", 3.5], ["milk", 1.94]),
        saved(UNTOUCHED),
    ),
    _tables(
        saved(GOLD),
        FUZZY,
        said(["", ""], ["TEAS", 3.5], ["milk", 2]),
        said(["", ""], ["tea", 3.4], ["milk", 2]),
        said(["", ""], ["coffee", 3.5], ["milk", 2]),
        saved(UNTOUCHED),
    ),
    _tables(
        PLACES,
        fuzzy({"type": "exact_match"}),
        said(["Oslo, Norway"], ["Rome"], ["x"]),
        said(["Oslo, Norway"], ["rome"]),
        said(["Oslo Norway"], ["Rome"]),
        said(["Oslo, Norway"]),
    ),
    _tables(
        PLACES,
        fuzzy({"type": "exact_match", "ignore_case": True}),
        said(["OSLO, Norway"], ["rome"]),
        said(["Oslo, Norway"], ["romes"]),
        said(["Oslo,Norway"], ["Rome"]),
        said(["oslo, norway"]),
    ),
    _tables(
        PLACES,
        fuzzy({"type": "includes"}),
        said(["in Oslo, Norway"], ["Rome, Italy"]),
        said(["Oslo"], ["Rome"]),
        said(["in Oslo, Norway"], ["Rom"]),
        said(["Oslo, Norway"]),
    ),
    _tables(
        PLACES,
        fuzzy({"type": "included_by"}),
        said(["Oslo"], ["Rome"]),
        said(["Oslo!"], ["Rome"]),
        said(["Oslo"], ["Romes"]),
        said(["Oslo"]),
    ),
    _tables(
        PLACES,
        fuzzy(
            {
                "type": "exact_match",
                "trim_leadings": "+ ",
                "trim_trailings": ".",
                "ignore_chars": " ,",
                "normalization": [["Rd", "Rome"]],
            }
        ),
        said(["+ OsloNorway."], ["Rd"]),
        said(["- Oslo, Norway"], ["Rome"]),
        said(["Oslo, Norway"], ["Rdx"]),
        said(["Oslo, Norway"]),
    ),
    _tables(None, CELL, said([""], ["x", 3.5004]), said([""], ["x", 3.6]), said([""], ["x", "y"]), said(["", 3.5])),
    _tables(None, CELL, said([""], ["x", "3.5"]), said([""], ["x", "3.6"]), said([""], ["x", "3.5x"]), said(["", 3.5])),
    _tables(None, cell("A2", "re.I", "^os"), said([""], ["OSLO"]), said([""], ["so"]), said(["Oslo"]), said([""])),
    _tables(None, cell("A2", "eq", "Oslo"), said([""], ["Oslo"]), said([""], ["oslo"]), said(["Oslo"]), said([""])),
    rule(
        "chart", looking(charts=(chart(),)), looking(charts=(chart(title="Other"),)),
        looking(charts=(chart(kind="lineChart"),)), looking(charts=(chart(direction="bar"),)),
        chart_props=["direction", "type"], **PAIR,
    ),
    rule(
        "chart", looking(charts=(chart(),)), looking(charts=(chart(direction="bar"),)),
        looking(charts=(chart(title="Sale"),)), looking(charts=(chart(kind="pieChart"),)),
        chart_props=["title", "type"], **PAIR,
    ),
    rule(
        "chart", drawn(*AXES), drawn(*AXES, title="Other"), drawn(AXES[0], axis("val", "Sums")), drawn(*AXES, at="r"),
        drawn(AXES[1]), **RULE, **PAIR,
    ),
    rule(
        "sheet_print", printed("gold", "item,price\nTea,3.50\n"), printed("mine", "Item,price\ntea,3.50\n"),
        printed("mine", "item,price\ntea,3.5\n"), printed("mine", "item;price\ntea,3.50\n"), printed("mine", ""),
        sheet_idx0="RNSheet1", sheet_idx1="ENSheet1", ignore_case=True,
    ),
    *(
        rule(
            "style", looking(marked="A2", font=right), looking(marked="A2", font=right),
            looking(marked="A3", font=right), looking(marked="A2", font=near), looking(marked="A2", font=""),
            props=[name], **PAIR,
        )
        for name, right, near in (
            ("font_italic", "<i/>", '<i val="0"/>'),
            ("font_underline", '<u val="single"/>', '<u val="double"/>'),
            ("font_color", '<color rgb="FF0000FF"/>', '<color rgb="FF0000FE"/>'),
            ("font_size", '<sz val="12"/>', '<sz val="13"/>'),
        )
    ),
    rule(
        "style", looking(marked="A2"), looking(marked="A2", font="<i/>"), looking(marked="A3"),
        looking(marked="A2", fill="FFFF0001"), props=["fgcolor"], **PAIR,
    ),
    rule(
        "zoom", None, looking(view=zoom("150")), looking(view=zoom("151")), looking(view=zoom("15")),
        sheet_idx="RI0", method="eq", ref=150,
    ),
    rule(
        "data_validation", None, looking(after=check("B2", "whole", "5")), looking(after=check("B2", "whole", "6")),
        looking(after=check("B2", "decimal", "5")), sheet_idx="RNSheet1",
        dv_props=[{"type": {"method": "eq", "ref": "whole"}, "formula1": {"method": "eq", "ref": "5"}}],
    ),
    rule(
        "pivot_table", looking(pivots=(pivot(),)), looking(pivots=(pivot(),)),
        looking(pivots=(pivot(hidden=' h="1"'),)), looking(pivots=(pivot(rows="1"),)),
        pivot_props=["filter", "row_fields"], **PAIR,
    ),
    rule(
        "pivot_table", looking(pivots=(pivot(),)), looking(pivots=(pivot(rows="1"),)),
        looking(pivots=(pivot(subtotal="count"),)), looking(pivots=(pivot(data="0"),)),
        pivot_props=["col_fields", "data_fields"], **PAIR,
    ),
    Twin(
        "compare_conference_city_in_order",
        {"expected": CITIES},
        {},
        held(*CITIES),
        [held(*CITIES[:20], "Zoo"), held(CITIES[1], CITIES[0], *CITIES[2:]), held(*CITIES[:20]), said(["a"])],
    ),
]  # fmt: skip
