"""Calc: every function works on a sheet of its own, and what it did is read from the saved workbook.

Invariant: a sheet carries the name of the one function that changes it, so no case depends on another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, Step, Table, pages, same, told, want
from apis.apps.check.xlsx import WorkbookFile
from apis.documents.xlsx import make_xlsx

WORKBOOK = "Documents/book.xlsx"
GRID = (("Name", "Price", "Qty"), ("plum", 30, 4), ("fig", 5, 9), ("N/A", 20, 1), ("pear", 7, 2))
EXTRA = ("after", "before", "empty")
# These work on the workbook, or on a sheet of another name.
WITHOUT_DECIMALS = ("general", "date", "time", "fraction", "text")
ELSEWHERE = {"switch_active_sheet", "copy_sheet", "rename_sheet", "reorder_sheets", "export_to_pdf", "save"}
Seen = Callable[[WorkbookFile], None]


def _on(sheet: str) -> Step:
    async def show(desk: Desk) -> None:
        await desk.tool("switch_active_sheet", sheet_name=sheet)

    return show


def _case(
    function: str,
    right: Mapping[str, Any],
    says: str,
    wrong: Mapping[str, Any] | None = None,
    refusal: str = "",
    **more: Any,
) -> Case:
    before = more.pop("before", None if function in ELSEWHERE else _on(function))
    if wrong is not None:
        more |= {"wrong": wrong, "refusal": refusal}
    return Case(function=function, right=right, says=says, before=before, **more)


def _values(workbook: WorkbookFile) -> None:
    same(workbook.column("set_column_values", "AB", 6), ["x", 1, None, 2.5, "1", "007"], "AB1:AB6")
    same(workbook.column("set_column_values", "C"), ["Qty", 4, 9, 1, 2], "column C, which was refused")
    formats = [workbook.style("set_column_values", cell)["format"] for cell in ("C2", "C5")]
    want(formats[0] == formats[1], f"number formats of C2 and C5: {formats}")


async def _taken_back(desk: Desk, _: str) -> None:
    said = await desk.tool("set_column_values", column_name="C", data=["1/2/2020", "x", None, "=FOO("], start_index=2)
    want(said.startswith("refused: data[3]: Calc does not understand"), said)


def _typed(workbook: WorkbookFile) -> None:
    same(workbook.cell("set_cell_value", "D2"), 120, "D2")
    want("B2*C2" in workbook.sheet("set_cell_value"), "D2 has no formula")
    same(workbook.cell("set_cell_value", "D3"), None, "D3, which was refused")


def _turned(workbook: WorkbookFile) -> None:
    found = [workbook.column("transpose_range", letters, 3) for letters in "EFI"]
    same(found, [["Name", "Price", "Qty"], ["plum", 30, 4], ["pear", 7, 2]], "columns E, F, I")


def _sorted(workbook: WorkbookFile) -> None:
    same(workbook.column("sort_column", "B"), ["Price", 30, 20, 7, 5], "column B")
    same(workbook.column("sort_column", "A"), [row[0] for row in GRID], "column A")


def _reordered(workbook: WorkbookFile) -> None:
    found = [workbook.column("reorder_columns", letters)[:2] for letters in "ABC"]
    same(found, [["Qty", 4], ["Name", "plum"], ["Price", 30]], "columns A to C")


def _summed(workbook: WorkbookFile) -> None:
    sums = {
        workbook.cell("create_pivot_table", f"F{row}"): workbook.cell("create_pivot_table", f"G{row}")
        for row in range(1, 9)
    }
    same((sums.get("plum"), sums.get("fig"), sums.get("Total Result")), (4, 9, 16), "the table's sums")


def _formatted(workbook: WorkbookFile) -> None:
    style = workbook.style("format_range", "C2")
    want("FFFF00" in style["fill"], style["fill"])
    want("AA0000" in style["font"] and '<b val="true"/>' in style["font"], style["font"])
    want('horizontal="right"' in style["align"], style["align"])


def _shaded(workbook: WorkbookFile) -> None:
    fill = workbook.style("highlight_range", "B1")["fill"]
    want("FFCC00" in fill, fill)


def _percent(workbook: WorkbookFile) -> None:
    same(workbook.style("set_number_format", "B5")["format"], "0.0%", "number format of B5")


def _part(sheet: str, wanted: str) -> Seen:
    def look(workbook: WorkbookFile) -> None:
        want(wanted in workbook.sheet(sheet), f"the sheet's part has no {wanted}")

    return look


def _hidden(workbook: WorkbookFile) -> None:
    same(re.findall(r'<row r="(\d+)"[^>]*hidden="true"', workbook.sheet("hide_row_data")), ["4"], "hidden rows")


def _widths(workbook: WorkbookFile) -> None:
    cols = re.findall(
        r'<col [^>]*?max="(\d+)" min="(\d+)"[^>]*?width="([\d.]+)"', workbook.sheet("adjust_column_width")
    )
    found = [float(width) for high, low, width in cols if int(low) <= 2 <= int(high)]
    want(len(found) == 1 and abs(found[0] - 30) <= 1, f"width of column B: {found}")


def _heights(workbook: WorkbookFile) -> None:
    found = dict(re.findall(r'<row r="(\d+)"[^>]* ht="([\d.]+)"', workbook.sheet("adjust_row_height")))
    want(all(abs(float(found.get(row, 0)) - 36) <= 0.2 for row in "23"), f"heights: {found}")


def _rule(workbook: WorkbookFile) -> None:
    found = re.search(r"<dataValidation .*?</dataValidation>", workbook.sheet("set_validation_list"), re.DOTALL)
    rule = found[0] if found else "no rule"
    want('sqref="E1:E' in rule and "yes,no &amp; more" in rule, rule)


def _line_chart(workbook: WorkbookFile) -> None:
    found = [text for text in workbook.charts() if "lineChart" in text]
    want(bool(found) and "Fruit &lt;b&gt;" in found[0] and "what" in found[0], "no line chart with the titles")


def _legend(workbook: WorkbookFile) -> None:
    found = [text for text in workbook.charts() if "barChart" in text]
    want(bool(found) and '<c:legendPos val="b"/>' in found[0], "no column chart with its legend below")


def _moved(workbook: WorkbookFile) -> None:
    same(workbook.sheets[1], "empty", "the second sheet")


def _copied(workbook: WorkbookFile) -> None:
    want(
        "after_2" in workbook.sheets and workbook.sheets.index("after_2") == workbook.sheets.index("after") + 1,
        str(workbook.sheets),
    )
    same(workbook.column("after_2", "A"), ["Name", "plum", "fig", "N/A", "pear"], "column A of after_2")


def _renamed(workbook: WorkbookFile) -> None:
    want("Übersicht 1" in workbook.sheets and "before" not in workbook.sheets, str(workbook.sheets))


def _made(workbook: WorkbookFile) -> None:
    same(workbook.sheets[-1], "made", "the last sheet")


async def _shown(desk: Desk, _: str) -> None:
    info = await told(desk)
    want("active: 'made'" in info, info)


async def _stored(desk: Desk, _: str) -> None:
    await desk.tool("switch_active_sheet", sheet_name="empty")
    await desk.tool("set_cell_value", cell="H9", value="kept")
    await desk.tool("save")
    same(WorkbookFile(await desk.contents(WORKBOOK)).cell("empty", "H9"), "kept", "H9 of the saved file")


async def _csv(desk: Desk, _: str) -> None:
    data = await desk.contents("Documents/book.csv")
    same(data.decode().splitlines(), ["Name,Price,Qty", "plum,30,4", "fig,5,9", "N/A,20,1", "pear,7,2"], "book.csv")


async def _pdf(desk: Desk, _: str) -> None:
    same(pages(await desk.contents("out.pdf")), 1, "pages of out.pdf, one sheet's")


async def _charted(desk: Desk) -> None:
    await desk.tool("switch_active_sheet", sheet_name="set_chart_legend_position")
    await desk.tool("create_chart", chart_type="column", data_range="A1:B5")


async def _open_again(desk: Desk) -> None:
    await desk.call("hotkey", keys=["ctrl", "Home"])
    await desk.call("settle", timeout_ms=5000)


def _tables(number: int) -> Mapping[str, Any]:
    return {"source_sheet": "after", "table_name": f"Again {number}", "value_fields": ["Qty"], "row_fields": ["A"],
            "target_cell": f"F{20 + 10 * number}"}  # fmt: skip


def _names(number: int) -> Mapping[str, Any]:
    return {"old_name": f"Again {number - 1}" if number else "Übersicht 1", "new_name": f"Again {number}"}


async def _read(desk: Desk) -> WorkbookFile:
    await desk.tool("save")
    return WorkbookFile(await desk.contents(WORKBOOK))


CASES = (
    _case("get_workbook_info", {}, "active: 'get_workbook_info'; used: A1:C5\nrow: A | B | C\n1: Name | Price | Qty"),
    _case("get_column_data", {"column_name": "B"}, 'B1:B5: ["Price", 30, 5, 20, 7]',
          {"column_name": "Price"}, "column_name: write a column's letters"),
    _case("set_cell_value", {"cell": "D2", "value": "=B2*C2"}, "D2 = 120",
          {"cell": "D3", "value": "=B2*("}, "value: Calc does not understand the formula '=B2*('", saved=_typed),
    _case("set_column_values", {"column_name": "AB", "data": ["x", 1, None, "2.5", True, "'007"], "start_index": 1},
          "AB1:AB6 written", {"column_name": "A", "data": [1, 2], "start_index": 1048576},
          "start_index: 2 values do", effect=_taken_back, saved=_values),
    _case("highlight_range", {"range_str": "A1:C1", "color": 0xFFCC00}, "A1:C1 has the background #ffcc00",
          {"range_str": "A1", "color": -1}, "color: write a whole number", saved=_shaded),
    _case("transpose_range", {"source_range": "A1:C5", "target_cell": "E1"}, "written to E1:I3",
          {"source_range": "A1:C5", "target_cell": "XFD1"}, "target_cell: 3 rows and 5 columns do not fit",
          saved=_turned),
    _case("sort_column", {"column_name": "B", "ascending": False}, "B2:B5 sorted, largest first",
          {"column_name": "B", "start_index": 9}, "start_index: the sheet's last used row is 5", saved=_sorted),
    _case("set_validation_list", {"column_name": "E", "values": ["yes", "no & more"]}, "column E takes 'yes'",
          {"column_name": "E", "values": ['"']}, "values: '\"' can't stand in a list", saved=_rule),
    _case("hide_row_data", {}, "1 rows with 'N/A' are hidden", {"value": ""}, "value: write the text", saved=_hidden),
    _case("reorder_columns", {"column_order": ["C"]}, "C, A, B", {"column_order": ["E"]},
          "column_order: E is empty", saved=_reordered),
    _case("merge_cells", {"range_str": "E1:F2"}, "E1:F2 is one cell", {"range_str": "E1"},
          "range_str: write a range", saved=_part("merge_cells", '<mergeCell ref="E1:F2"/>')),
    _case("format_range", {"range_str": "A2:C2", "background_color": "yellow", "font_color": "#aa0000", "bold": True,
          "alignment": "right"}, "bold, right", {"range_str": "A2"}, "format_range: give background_color",
          saved=_formatted),
    _case("freeze_panes", {"rows": 1, "columns": 2}, "1 rows and 2 columns", {"rows": -1},
          "rows: write a whole number", saved=_part("freeze_panes", 'xSplit="2" ySplit="1"')),
    _case("set_number_format", {"range_str": "B2:B5", "format_type": "percentage", "decimal_places": 1}, "percentage",
          {"range_str": "B2", "format_type": "date", "decimal_places": 1}, "decimal_places: date has none",
          saved=_percent, chosen={each: {"decimal_places": None} for each in WITHOUT_DECIMALS}),
    _case("adjust_column_width", {"columns": "B:C", "width": 30}, "30 characters", {"columns": "B"}, "width: give",
          saved=_widths),
    _case("adjust_row_height", {"rows": "2:3", "height": 36}, "36 points", {"rows": "2"}, "height: give",
          saved=_heights),
    _case("create_chart", {"chart_type": "line", "data_range": "A1:C5", "title": "Fruit <b>", "x_axis_title": "what"},
          "'Chart 1' (line) shows A1:C5", {"chart_type": "pie", "data_range": "A1:C5", "x_axis_title": "x"},
          "x_axis_title: a pie has no axes", saved=_line_chart, chosen={"pie": {"x_axis_title": None}}),
    _case("create_pivot_table", {"source_sheet": "after", "table_name": "Sums", "value_fields": ["Qty"],
          "row_fields": ["A"], "target_cell": "F1"}, "table 'Sums' is at F1",
          {"source_sheet": "after", "table_name": "T", "value_fields": ["Cost"]},
          "value_fields: there is no field 'Cost'; there are", saved=_summed, again=_tables),
    _case("set_zoom_level", {"zoom_percentage": 75}, "75 %", {"zoom_percentage": 5},
          "zoom_percentage: write a whole number", saved=_part("set_zoom_level", 'zoomScale="75"')),
    _case("switch_active_sheet", {"sheet_name": "made"}, "'made' is active (new)", {"sheet_name": "a/b"},
          "sheet_name: a sheet's name", effect=_shown, saved=_made,
          again=lambda n: {"sheet_name": ("after", "empty")[n % 2]}),
    _case("copy_sheet", {"source_sheet": "after"}, "'after_2' is a copy of 'after' and stands",
          {"source_sheet": "aftr"}, "source_sheet: there is no sheet 'aftr'; there are 'get_workbook_info'",
          saved=_copied),
    _case("rename_sheet", {"old_name": "before", "new_name": "Übersicht 1"}, "'before' is now 'Übersicht 1'",
          {"old_name": "after", "new_name": "After_2"}, "new_name: there is a sheet", saved=_renamed, again=_names),
    _case("reorder_sheets", {"sheet_name": "empty", "position": 1}, "'empty' stands at position 1 of 0 to",
          {"sheet_name": "empty", "position": 255}, "position: write a place from 0 to", saved=_moved,
          again=lambda n: {"sheet_name": "empty", "position": 2 + n % 2}),
    _case("export_to_csv", {}, "wrote book.csv", effect=_csv, light=False),
    _case("export_to_pdf", {"file_path": "~/out.pdf", "sheets": ["after"]}, "wrote out.pdf",
          {"file_path": "/etc/out.pdf"}, "file_path: the file lies outside the home folder", effect=_pdf,
          light=False),
    _case("set_chart_legend_position", {"position": "bottom"}, "legend: bottom", {"position": "middle"},
          "position: write one of 'top'", before=_charted, saved=_legend),
    # Not bounded: the office's filter takes milliseconds per sheet, and here every case has one.
    _case("save", {}, "saved book.xlsx", effect=_stored, light=False),
)  # fmt: skip


def _files() -> Mapping[str, bytes]:
    sheets = [case.function for case in CASES if case.function not in ELSEWHERE]
    return {WORKBOOK: make_xlsx(dict.fromkeys([*sheets, *EXTRA], GRID))}


TABLE = Table(
    app="libreoffice_calc",
    owner="CalcTools",
    cases=CASES,
    files=_files,
    opens=(f"{{home}}/{WORKBOOK}",),
    title="book.xlsx",
    ready=_open_again,
    read=_read,
)
