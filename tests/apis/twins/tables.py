"""Twins of compare_table's rules that look at more than cells."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from apis.tasks.verify.verify import FileView
from tests.apis.twins.made_books import chart, pivot, styled
from tests.apis.twins.twin import Twin, file

CELLS: dict[str, list[list[Any]]] = {"Sheet1": [["item", "price"], ["tea", 3.5], ["milk", 2]]}
PAIR = {"sheet_idx0": 0, "sheet_idx1": "EI0"}


def book(**more: Any) -> FileView:
    """A workbook of `CELLS`, with more as `styled` has it."""
    return file(styled(CELLS, **more))


def printed(stem: str, lines: str) -> FileView:
    """A workbook with the table of text that was made of its sheet."""
    return replace(book(), name=f"{stem}.xlsx", beside={f"{stem}-Sheet1.csv": file(lines)})


def rule(kind: str, expected: FileView | None, right: FileView, *wrong: FileView, **more: Any) -> Twin:
    """A twin of one rule of compare_table; the last wrong result is untouched."""
    return Twin("compare_table", expected, {"rules": [{"type": kind, **more}]}, right, [*wrong, book()])


def pane(cell: str, state: str = "frozen") -> str:
    """A view that is frozen or split before a cell."""
    return f'<sheetViews><sheetView><pane topLeftCell="{cell}" state="{state}"/></sheetView></sheetViews>'


def zoom(scale: str) -> str:
    """A view of this scale, in percent."""
    return f'<sheetViews><sheetView zoomScale="{scale}"/></sheetViews>'


def check(ranges: str = "B2:B9", kind: str = "list", formula: str = '"yes,no"') -> str:
    """A check of input in these ranges."""
    one = f'<dataValidation type="{kind}" sqref="{ranges}"><formula1>{formula}</formula1></dataValidation>'
    return f"<dataValidations>{one}</dataValidations>"


CHECKED = {
    "ranges": {"method": "spreadsheet_range", "ref": ["B2:B3", "B2:B1048576"]},
    "type": {"method": "eq", "ref": "list"},
    "formula1": {"method": "str_set_eq", "ref": ["no", "yes"]},
}
DEAR = '<cfRule type="cellIs" dxfId="0" priority="1" operator="greaterThan"><formula>3</formula></cfRule>'
RED = {"method": "eq", "ref": "FFFF0000"}
BLUE = '<color rgb="FF0000FF"/>'
TWINS = [
    rule(
        "freeze",
        book(view=pane("B2")),
        book(view=pane("B2")),
        book(view=pane("B3")),
        book(view=pane("B2", "split")),
        **PAIR,
    ),
    rule(
        "zoom",
        None,
        book(view=zoom("200")),
        book(view=zoom("260")),
        book(view=zoom("x")),
        sheet_idx=0,
        method="range.te",
        ref=[150, 259],
    ),
    rule(
        "style",
        book(marked="A2"),
        book(marked="A2", after="<conditionalFormatting/>"),
        book(marked="A3"),
        book(marked="A2", fill="FFFF0001"),
        book(marked="A2", after=f'<conditionalFormatting sqref="B2">{DEAR}</conditionalFormatting>'),
        props=["bgcolor"],
        **PAIR,
    ),
    rule(
        "style",
        book(marked="A2"),
        book(marked="A2", fill="FF00FF00"),
        book(marked="A2", font="<i/>"),
        book(marked="A2", font='<b val="0"/>'),
        props=["font_bold", "font_name"],
        **PAIR,
    ),
    rule(
        "check_cell",
        None,
        book(marked="A2", font=f"<b/>{BLUE}"),
        book(marked="A2", font=BLUE),
        book(marked="A2", font="<b/>"),
        sheet_idx="RNSheet1",
        coordinate="A2",
        props={
            "bgcolor": RED,
            "font_color": {"method": "eq", "ref": "FF0000FF"},
            "font_bold": {"method": "eq", "ref": True},
            "value": {"method": "eq", "ref": "tea"},
        },
    ),
    rule(
        "data_validation",
        None,
        book(after=check()),
        book(after=check(ranges="B3:B9")),
        book(after=check(formula='"yes"')),
        book(after=check(kind="whole")),
        book(after=check(ranges="B2:C9")),
        sheet_idx=0,
        dv_props=[CHECKED],
    ),
    rule(
        "chart",
        book(charts=(chart(),)),
        book(charts=(chart(),)),
        book(charts=(chart(kind="lineChart"),)),
        book(charts=(chart(title="Sale"),)),
        book(charts=(chart(values="Sheet1!$B$2:$B$4"),)),
        book(charts=(chart(direction="bar"),)),
        book(charts=(chart(), chart(title="Two"))),
        chart_props=["type", "title", "direction"],
        **PAIR,
    ),
    rule(
        "pivot_table",
        book(pivots=(pivot(),)),
        book(pivots=(pivot(),)),
        book(pivots=(pivot(rows="1"),)),
        book(pivots=(pivot(subtotal="count"),)),
        book(pivots=(pivot(hidden=' h="1"'),)),
        pivot_props=["col_fields", "filter", "row_fields", "data_fields"],
        **PAIR,
    ),
    rule(
        "sheet_print",
        printed("gold", "item,price\ntea,3.50\n"),
        printed("mine", "item,price \ntea,3.50\n\n"),
        printed("mine", "item,price\ntea,3.5\n"),
        printed("mine", "item,price\n"),
        printed("mine", ""),
        sheet_idx0="RNSheet1",
        sheet_idx1="ENSheet1",
    ),
]
