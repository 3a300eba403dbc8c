"""What Calc would do silently wrong, in another place or not at all is refused, or done right; on a real Calc."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from actors.errors import GuestRefused
from apis.applications import app_named
from apis.apps.check.steps import values
from apis.functions.values import Unfit
from apis.observation import Observation, from_guest
from apis.prompts.compact import render_compact
from tests.actors.desktop.calc_workbooks import LOCKED, workbook
from tests.actors.desktop.offices import Office, booted

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

BOOK = "Documents/book.xlsx"
CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (  # calls that change the sheet in front
    ("set_cell_value", {"cell": "A1", "value": "x"}),
    ("set_column_values", {"column_name": "A", "data": ["x"]}),
    ("transpose_range", {"source_range": "A1:B2", "target_cell": "E1"}),
    ("sort_column", {"column_name": "B"}),
    ("reorder_columns", {"column_order": ["C"]}),
    ("merge_cells", {"range_str": "A1:B1"}),
    ("highlight_range", {"range_str": "A1"}),
    ("format_range", {"range_str": "A1", "bold": True}),
    ("set_number_format", {"range_str": "B2", "format_type": "text"}),
    ("hide_row_data", {"value": "fig"}),
    ("adjust_column_width", {"columns": "A", "width": 9}),
    ("adjust_row_height", {"rows": "1", "height": 30}),
    ("set_validation_list", {"column_name": "A", "values": ["a"]}),
    ("create_chart", {"chart_type": "line", "data_range": "A1:B4"}),
)


FILE = "'file:///etc/passwd'#$Sheet1.A1"
COMPUTED = (
    '=INDIRECT("\'file:///etc/passwd"&CHAR(39)&"#$Sheet1.A1")',
    '=1+indirect ( "\'/etc/hosts\'"&UNICHAR(35)&"$Sheet1.A1")',
    "=INDIRECT(\"'file:///etc/passwd'#$Sheet1.A1\")",
    '=INDIRECT("[passwd]Sheet1!A1", 0)',
    "=INDIRECT(P2)",  # which a later call may fill
)


class Calc(Office):
    """One warm Calc for the whole module."""

    owner = "CalcTools"

    async def open(self, path: str) -> None:
        argv = [*app_named("libreoffice_calc").argv, f"{self.home}/{path}"]
        await self("open_window", argv=argv, title=path.rpartition("/")[2], timeout_ms=20_000)
        await self("settle", timeout_ms=5000, quiet_ms=100)

    async def on(self, sheet: str) -> None:
        await self.tool("switch_active_sheet", sheet_name=sheet)

    async def column(self, letter: str) -> str:
        return (await self.tool("get_column_data", column_name=letter)).partition(": ")[2]

    async def saved(self, xpath: str) -> Any:
        assert (await self.tool("save")).startswith("saved")
        return values(await self("read_file", path=BOOK), xpath)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calc() -> AsyncIterator[Calc]:
    async with booted() as made:
        guest = Calc(*made)
        await guest("write_file", path=BOOK, data=workbook())
        await guest.open(BOOK)
        yield guest


async def seen(calc: Calc, wanted: Callable[[Observation], bool]) -> Observation:
    """What shows; looked for again while a busy machine does not let Calc say all in time."""
    await calc("settle", timeout_ms=5000, quiet_ms=100)
    for _ in range(5):
        look = from_guest(await calc("observe"))
        if wanted(look):
            break
    return look


def cells(look: Observation) -> dict[str, str]:
    return {element.name: element.text for element in look.elements if element.tag == "table-cell"}


PIVOT = {"table_name": "T", "value_fields": ["Qty"], "row_fields": ["Name"]}
MATRIX = "is part of the matrix formula"
# Of a sheet: the function, its arguments, and how its refusal begins.
REFUSALS: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "matrix": [
        ("set_cell_value", {"cell": "E7", "value": "1"}, f"value: E7 {MATRIX}"),
        ("set_cell_value", {"cell": "E8", "value": "1"}, f"value: E8 {MATRIX}"),
        ("set_column_values", {"column_name": "E", "data": ["x", 1], "start_index": 6}, f"data[1]: E7 {MATRIX}"),
        ("transpose_range", {"source_range": "A1:B1", "target_cell": "E8"}, "target_cell: E7:E8 is a matrix formula"),
        ("merge_cells", {"range_str": "E7:F7"}, "range_str: E7:E8 is a matrix formula, of which E7:F7 would take"),
        ("reorder_columns", {"column_order": ["F", "A"]}, "column_order: E11:F11 is a matrix formula over several"),
    ],
    "wide": [
        ("create_pivot_table",
         {"source_sheet": "wide", "table_name": "W", "value_fields": ["Sum"], "row_fields": ["Kind"],
          "col_fields": ["Year"]},
         "target_cell: the table takes A1:"),
        ("create_pivot_table", {**PIVOT, "source_sheet": "right", "table_name": "", "target_cell": "M1"}, "table_name"),
        ("create_pivot_table", {**PIVOT, "source_sheet": "doubled", "target_cell": "M1"},
         "source_sheet: several columns are headed 'Qty': rename them first"),
    ],
    "two": [
        ("create_pivot_table", {**PIVOT, "source_sheet": "right", "value_fields": ["note"], "target_cell": "H1"},
         "value_fields: there is no field 'note'; there are 'Name', 'Price', 'Qty'"),
        ("create_pivot_table", {**PIVOT, "source_sheet": "two", "target_cell": "B2"},
         "target_cell: B2 lies in the data; take F1, or switch to another sheet first"),
        ("create_pivot_table", {**PIVOT, "source_sheet": "two", "target_cell": "B6"},
         "target_cell: the table takes B6:C11, and B6 is filled: take F1, or"),
    ],
    "plain": [
        ("set_validation_list", {"column_name": "F", "values": [f"{n:010d}" for n in range(40)]},
         "values: such a file keeps 255 characters of them, commas included; these are 439"),
        ("set_validation_list", {"column_name": "F", "values": ["Doe", "Smith, J"]}, "values: 'Smith, J' would become"),
        ("freeze_panes", {"rows": 400}, "rows: so many do not fit"),
        ("freeze_panes", {"rows": 1, "columns": 200}, "columns: so many do not fit"),
        ("create_chart", {"chart_type": "line", "data_range": "A1:A1048576"}, "data_range: at most 20000 cells"),
        ("merge_cells", {"range_str": "A8:A8"}, "range_str: write a range of two"),
        ("sort_column", {"column_name": "H", "start_index": 2}, "column_name: H2 is empty"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("sheet", REFUSALS)
async def test_what_would_change_another_thing_is_refused_and_changes_nothing(calc: Calc, sheet: str) -> None:
    await calc.on(sheet)
    before = [await calc.column(letter) for letter in "ABCEF"]
    for name, arguments, said in REFUSALS[sheet]:
        told = await calc.tool(name, **arguments)
        assert told.startswith(f"refused: {said}"), (name, told)
    assert [await calc.column(letter) for letter in "ABCEF"] == before
    with pytest.raises(Unfit, match="data_range: at most 2097152 cells"):  # before it reaches the desktop
        await calc.tool("create_chart", chart_type="line", data_range="A1:XFD1048576")


async def test_a_protected_sheet_is_said_and_stays_as_it_is(calc: Calc) -> None:
    await calc.on("locked")
    before = [await calc.column(letter) for letter in "ABC"]
    for name, arguments in (
        *CHANGES,
        (
            "create_pivot_table",
            {"source_sheet": "plain", "table_name": "T", "value_fields": ["Qty"], "target_cell": "H1"},
        ),
    ):
        told = await calc.tool(name, **arguments)
        assert told.startswith("refused: "), (name, told)
        assert "the sheet 'locked' is protected" in told, (name, told)
    assert [await calc.column(letter) for letter in "ABC"] == before


async def test_columns_that_hold_together_are_not_moved_apart(calc: Calc) -> None:
    await calc.on("merged")
    await calc.tool("set_cell_value", cell="A9", value="wide")
    assert await calc.tool("merge_cells", range_str="A9:B9") == "A9:B9 is one cell"
    told = await calc.tool("reorder_columns", column_order=["C"])
    assert told == "refused: column_order: a merged cell reaches beyond A1:A9, to A1:B9"
    await calc.on("broad")
    for _ in range(2):
        told = await calc.tool("reorder_columns", column_order=["B"])
        assert told.startswith("columns now stand in the order B, A, C")


async def test_frozen_rows_and_columns_are_the_first_ones_wherever_the_view_is(calc: Calc) -> None:
    await calc.on("plain")
    await calc.tool("set_cell_value", cell="A300", value="end")
    for keys in (["ctrl", "End"], ["Down"]):
        await calc("hotkey", keys=keys)
        await calc("settle", timeout_ms=3000, quiet_ms=100)
    for rows, columns in ((1, 2), (2, 0), (0, 0)):
        told = await calc.tool("freeze_panes", rows=rows, columns=columns)
        assert told == f"{rows} rows and {columns} columns stay in view"
        split = [await calc.saved(f"//part[@sheet='plain']//x:pane/@{side}") for side in ("ySplit", "xSplit")]
        assert [(each or ["0"])[0] for each in split] == [str(rows), str(columns)]
        assert not columns or await calc.saved("//part[@sheet='plain']//x:sheetView/@topLeftCell") == ["A1"]


async def test_what_can_not_be_sorted_is_said(calc: Calc) -> None:
    await calc.on("merged")
    await calc.tool("set_column_values", column_name="D", data=["=B2*2", "=B3*2", "=B4*2"])
    before = await calc.column("D")
    for cells, column, said in (
        ("", "D", "D2:D4 holds formulas, and those follow the cells beside them"),
        ("B3:B4", "B", "B2:B4 has merged cells, which can't be sorted"),
        ("F2:G2", "F", "a merged cell reaches beyond F2:F3, to F2:G3"),
    ):
        if cells:
            assert await calc.tool("merge_cells", range_str=cells) == f"{cells} is one cell"
            await calc.tool("set_column_values", column_name="F", data=[3, 2], start_index=2)
        told = await calc.tool("sort_column", column_name=column, start_index=2)
        assert told.startswith(f"refused: column_name: {said}"), told
    assert await calc.column("D") == before
    beyond = "refused: range_str: a merged cell reaches beyond B6:C7"
    for cells, said in (("A6:B6", "A6:B6 is one cell"), ("B6:C7", beyond), ("A6:D6", "A6:D6 is one cell")):
        assert (await calc.tool("merge_cells", range_str=cells)).startswith(said)


async def test_a_pivot_table_is_made_of_one_block_of_cells(calc: Calc) -> None:
    await calc.on("empty")
    assert await calc.tool("create_pivot_table", **PIVOT, source_sheet="two") == "table 'T' is at A1:B6"
    assert (await calc.column("A")).endswith('"Name", "fig", "plum", "Total Result"]')
    assert (await calc.column("B")).endswith(", 9, 4, 13]")


async def test_what_is_being_typed_into_a_cell_counts(calc: Calc) -> None:
    await calc.on("plain")
    await calc.tool("set_cell_value", cell="H1", value="old")
    for place, then, wanted in (("A7", "save", "42"), ("A8", "set_cell_value", "last")):
        await calc("hotkey", keys=["ctrl", "Home"])
        for _ in range(int(place[1:]) - 1):
            await calc("hotkey", keys=["Down"])
        await calc("type_text", text="42")
        await calc("settle", timeout_ms=3000, quiet_ms=200)
        if then != "save":
            assert await calc.tool(then, cell=place, value=wanted) == f"{place} = {wanted}"
        value = f"//part[@sheet='plain']//x:c[@r='{place}']/x:v"
        found = await calc.saved(value if wanted == "42" else f"string(//x:sst/x:si[1 + {value}])")
        assert found == (["42"] if wanted == "42" else wanted)
    await calc.tool("set_cell_value", cell="A7", value="")
    await calc.tool("set_cell_value", cell="A8", value="")


async def test_a_second_export_holds_what_has_changed(calc: Calc) -> None:
    await calc.on("plain")
    for value in ("first", "second"):
        await calc.tool("set_cell_value", cell="C2", value=value)
        assert await calc.tool("export_to_csv") == "wrote book.csv"
        assert value.encode() in await calc("read_file", path="Documents/book.csv")
        with pytest.raises(GuestRefused):
            await calc("read_file", path="Documents/book-plain.csv")


async def test_rows_are_hidden_by_what_their_cells_show(calc: Calc) -> None:
    await calc.on("plain")
    await calc.tool("set_column_values", column_name="D", data=["share", 0.5, 0.25])
    await calc.tool("set_number_format", range_str="D2:D5", format_type="percentage", decimal_places=1)
    assert (await calc.tool("hide_row_data", value="0.5")).startswith("refused: value: no cell of the sheet 'plain'")
    assert (await calc.tool("hide_row_data", value="50%")).startswith("1 rows with")


async def test_what_is_told_of_a_sheet_goes_beyond_column_z(calc: Calc) -> None:
    await calc.on("plain")
    await calc.tool("set_cell_value", cell="AB2", value="far away")
    header, row = (await calc.tool("get_workbook_info")).splitlines()[1:4:2]
    assert header.endswith("| Z | AA | AB")
    assert row.startswith("2: plum | 30 |")
    assert row.endswith("| far away")
    await calc.tool("set_cell_value", cell="AB2", value="")


async def test_a_formula_reads_no_other_file(calc: Calc) -> None:
    await calc.on("doubled")
    direct = "='file:///etc/passwd'#$Sheet1.A1", "='/etc/passwd' #$a.A1"
    for formula in (*direct, '=WEBSERVICE("file:///etc/passwd")'):
        told = await calc.tool("set_cell_value", cell="P1", value=formula)
        assert told == "refused: value: a formula reads this workbook only, no other file"
    await calc.tool("set_cell_value", cell="P2", value="'" + FILE)
    for formula in COMPUTED:
        told = await calc.tool("set_cell_value", cell="P1", value=formula)
        assert re.match(
            "refused: value: (INDIRECT takes a quoted reference within|a formula reads) this workbook", told
        )
    await calc.tool("set_cell_value", cell="P2", value="")
    assert await calc.tool("set_cell_value", cell="P1", value='=INDIRECT("plain.B2")') == "P1 = 30"
    assert await calc.tool("set_cell_value", cell="P1", value="=plain.B2&\"#\"&'wide'.C2") == "P1 = 30#a"


async def test_of_a_row_that_is_too_long_its_beginning_is_told(calc: Calc) -> None:
    await calc.on("long")
    for column in range(20):
        await calc.tool("set_cell_value", cell=f"{chr(65 + column)}1", value=f"{column} " + "x" * 98)
    told = await calc.tool("get_workbook_info")
    assert told.splitlines()[2].startswith("1: 0 xxx")
    assert told.endswith("x...")
    assert 1800 < len(told) <= 1900


async def test_a_folder_that_may_not_be_written_is_refused_by_name(calc: Calc) -> None:
    await calc.run("mkdir ro; chmod 555 ro")
    told = await calc.tool("export_to_pdf", file_path="~/ro/x.pdf")
    assert told == "refused: file_path: x.pdf may not be written there: choose another folder"
    await calc.run("chmod 555 Documents")
    told = await calc.tool("export_to_csv")
    assert told == "refused: the workbook: book.csv may not be written there: choose another folder"
    await calc.run("chmod 755 Documents")


async def test_a_hidden_sheet_is_said_to_be_and_shows_when_it_is_switched_to(calc: Calc) -> None:
    assert "'secret' (hidden), 'over'," in await calc.tool("get_workbook_info")
    assert await calc.tool("switch_active_sheet", sheet_name="secret") == "'secret' is active (it was hidden)"
    assert await calc.tool("set_cell_value", cell="A9", value="mine") == "A9 = mine"
    assert "'secret', 'over'" in (await calc.tool("get_workbook_info")).splitlines()[0]
    at = "//part[@sheet='{}']//x:c[@r='A9']/x:v"
    assert await calc.saved(f"string(//x:sst/x:si[1 + {at.format('secret')}])") == "mine"
    assert await calc.saved(at.format("plain")) == []
    assert await calc.tool("switch_active_sheet", sheet_name="plain") == "'plain' is active"


async def test_a_cell_under_a_merged_one_is_not_written(calc: Calc) -> None:
    await calc.on("over")
    before = [await calc.column(letter) for letter in "BCD"]
    for area in ("A6:B6", "C2:C3"):
        assert await calc.tool("merge_cells", range_str=area) == f"{area} is one cell"
    told = await calc.tool("set_cell_value", cell="B6", value="x")
    assert told == "refused: cell: B6 lies in the merged cell A6:B6: write A6"
    told = await calc.tool("set_column_values", column_name="B", data=["w", "x"], start_index=5)
    assert told == "refused: data[1]: B6 lies in the merged cell A6:B6: write A6"
    assert [await calc.column("B"), await calc.column("D")] == [before[0], before[2]]
    told = await calc.tool("set_column_values", column_name="C", data=[8, 9, 10])
    assert told == "refused: data[1]: C3 lies in the merged cell C2:C3: write C2"
    assert await calc.tool("set_column_values", column_name="C", data=[8, None, 10]) == "C2:C4 written, 3 values"
    assert await calc.tool("set_cell_value", cell="A6", value="x") == "A6 = x"
    before = await calc.column("B")
    told = await calc.tool("transpose_range", source_range="A1:A2", target_cell="A6")
    assert told == "refused: target_cell: a value would lie under the merged cell A6:B6: choose another cell"
    assert await calc.column("B") == before
    assert (await calc.tool("transpose_range", source_range="A1", target_cell="A6")).startswith("A1 written to A6")


async def test_cells_transposed_onto_themselves_keep_their_number_formats(calc: Calc) -> None:
    await calc.on("pairs")
    await calc.tool("set_number_format", range_str="A1", format_type="date")
    await calc.tool("set_number_format", range_str="B1:B2", format_type="percentage")
    assert (await calc.tool("transpose_range", source_range="A1:B2", target_cell="A1")).startswith("A1:B2 written")
    assert [await calc.column(letter) for letter in "AB"] == ['["2024-01-01", 0.5]', "[7, 0.25]"]
    for shown in ("7", "25%"):
        assert (await calc.tool("hide_row_data", value=shown)).startswith("1 rows with"), shown


async def test_a_table_is_seen_that_begins_far_from_the_first_cell(calc: Calc) -> None:
    for sheet, first, last in (("right", "H1", "J4"), ("below", "A9", "C12")):
        await calc.on(sheet)
        look = await seen(calc, lambda look, last=last: last in cells(look))
        assert (cells(look).get(first), cells(look).get(last)) == ("Name", "2"), cells(look)
        assert f" table-cell {first} Name\n" in render_compact("Go", [], look, None)


async def test_errors_have_the_names_that_they_show(calc: Calc) -> None:
    await calc.on("right")
    for at, formula in enumerate(("=1/0", "=NA()", "=SQRT(-1)"), 1):
        await calc.tool("set_cell_value", cell=f"L{at}", value=formula)
    assert (await calc.column("L")).endswith('["#DIV/0!", "#N/A", "Err:502"]')
    assert " | #DIV/0!" in await calc.tool("get_workbook_info")
    look = await seen(calc, lambda look: "L3" in cells(look))
    assert [cells(look).get(f"L{row}") for row in range(1, 4)] == ["#DIV/0!", "#N/A", "Err:502"]
    for row in range(1, 4):
        await calc.tool("set_cell_value", cell=f"L{row}", value="")


@pytest.mark.proof
async def test_what_needs_the_cells_is_refused_in_the_print_preview(calc: Calc) -> None:
    await calc.on("plain")
    await calc("hotkey", keys=["ctrl", "shift", "o"])
    preview = "the window shows the print preview: close that first, by File > Print Preview"
    look = await seen(calc, lambda look: "did not answer" not in look.info)
    assert look.info == f"not known: {preview}"
    for name, arguments in (
        ("get_workbook_info", {}),
        ("set_cell_value", {"cell": "A1", "value": "x"}),
        ("switch_active_sheet", {"sheet_name": "two"}),
        ("switch_active_sheet", {"sheet_name": "new"}),
        ("set_zoom_level", {"zoom_percentage": 50}),
        ("freeze_panes", {"rows": 1}),
        ("export_to_csv", {}),
    ):
        assert await calc.tool(name, **arguments) == f"refused: {preview}", name
    assert "new" not in await calc.saved("//x:sheets/x:sheet/@name")
    await calc("hotkey", keys=["ctrl", "shift", "o"])
    await calc("settle", timeout_ms=5000, quiet_ms=100)
    assert await calc.tool("set_cell_value", cell="A1", value="Name") == "A1 = Name"


@pytest.mark.proof
async def test_nothing_is_changed_in_a_workbook_that_is_open_for_reading_only(calc: Calc) -> None:
    """From here on the workbook in front is another one."""
    await calc.on("plain")
    assert (await calc.tool("create_chart", chart_type="line", data_range="A1:B4")).startswith("'Chart 1'")
    assert "plain" in await calc.saved("//x:sheets/x:sheet/@name")
    await calc.run("cp Documents/book.xlsx Documents/fixed.xlsx; chmod 444 Documents/fixed.xlsx")
    await calc.open("Documents/fixed.xlsx")
    about = await calc.tool("get_workbook_info")
    assert about.splitlines()[0].endswith("; open for reading only")
    table = {"source_sheet": "two", "table_name": "T", "value_fields": ["Qty"], "target_cell": "H9"}
    for name, arguments in (
        *CHANGES,
        ("set_chart_legend_position", {"position": "none"}),
        ("create_pivot_table", table),
        ("switch_active_sheet", {"sheet_name": "new"}),
        ("switch_active_sheet", {"sheet_name": "kept"}),
        ("rename_sheet", {"old_name": "plain", "new_name": "new"}),
        ("copy_sheet", {"source_sheet": "plain"}),
        ("reorder_sheets", {"sheet_name": "plain", "position": 1}),
    ):
        told = await calc.tool(name, **arguments)
        assert told.startswith("refused: "), (name, told)
        assert told.endswith("the workbook is open for reading only and can't be changed: end that by Edit > Edit Mode")
    assert await calc.tool("get_workbook_info") == about
    assert await calc.tool("set_zoom_level", zoom_percentage=90) == "zoom is 90 %"
    assert await calc.tool("switch_active_sheet", sheet_name="two") == "'two' is active"


@pytest.mark.proof
async def test_a_workbook_whose_sheets_are_protected_keeps_them(calc: Calc) -> None:
    """Last, for the workbook in front is another one from here on."""
    await calc("write_file", path="Documents/locked.fods", data=LOCKED.encode())
    await calc.open("Documents/locked.fods")
    for name, arguments in (
        ("switch_active_sheet", {"sheet_name": "new"}),
        ("rename_sheet", {"old_name": "plain", "new_name": "new"}),
        ("copy_sheet", {"source_sheet": "plain"}),
        ("reorder_sheets", {"sheet_name": "plain", "position": 1}),
        (
            "create_pivot_table",
            {"source_sheet": "plain", "table_name": "T", "value_fields": ["a"], "target_cell": "H1"},
        ),
    ):
        told = await calc.tool(name, **arguments)
        assert told.startswith("refused: "), (name, told)
        assert "the workbook's sheets are protected" in told, (name, told)
    assert "sheets: 'plain', 'other'; active" in await calc.tool("get_workbook_info")
    assert await calc.tool("switch_active_sheet", sheet_name="other") == "'other' is active"
