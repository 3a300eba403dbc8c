"""What Calc would do silently wrong or not at all is refused, or done right; on a real Calc."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from actors.errors import GuestRefused
from apis.applications import app_named
from apis.apps.check.steps import values
from apis.functions.values import Unfit
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


async def test_a_part_of_a_matrix_formula_is_no_cell_to_type_into(calc: Calc) -> None:
    await calc.on("matrix")
    before = await calc.column("E")
    for cell in ("E7", "E8"):
        told = await calc.tool("set_cell_value", cell=cell, value="1")
        assert told.startswith(f"refused: value: {cell} is part of the matrix formula"), told
    told = await calc.tool("set_column_values", column_name="E", data=["x", 1], start_index=6)
    assert told.startswith("refused: data[1]: E7 is part of the matrix formula"), told
    told = await calc.tool("transpose_range", source_range="A1:B1", target_cell="E8")
    assert told.startswith("refused: target_cell: E7:E8 is a matrix formula, of which E8:E9 would replace a part"), told
    told = await calc.tool("merge_cells", range_str="E7:F7")
    assert told == "refused: range_str: E7:E8 is a matrix formula, of which E7:F7 would take a part"
    assert await calc.column("E") == before


async def test_columns_that_hold_together_are_not_moved_apart(calc: Calc) -> None:
    await calc.on("matrix")
    before = [await calc.column(letter) for letter in "AEF"]
    told = await calc.tool("reorder_columns", column_order=["F", "A"])
    assert told == "refused: column_order: E11:F11 is a matrix formula over several columns"
    assert [await calc.column(letter) for letter in "AEF"] == before
    await calc.on("merged")
    await calc.tool("set_cell_value", cell="A9", value="wide")
    assert await calc.tool("merge_cells", range_str="A9:B9") == "A9:B9 is one cell"
    told = await calc.tool("reorder_columns", column_order=["C"])
    assert told == "refused: column_order: a merged cell reaches beyond A1:A9, to A1:B9"
    await calc.on("broad")
    assert (await calc.tool("reorder_columns", column_order=["B"])).startswith("columns now stand in the order B, A, C")
    assert (await calc.tool("reorder_columns", column_order=["B"])).startswith("columns now stand in the order B, A, C")


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


async def test_frozen_rows_and_columns_are_the_first_ones_wherever_the_view_is(calc: Calc) -> None:
    await calc.on("plain")
    assert (await calc.tool("freeze_panes", rows=400)).startswith("refused: rows: so many do not fit")
    assert (await calc.tool("freeze_panes", rows=1, columns=200)).startswith("refused: columns: so many do not fit")
    await calc.tool("set_cell_value", cell="A300", value="end")
    for keys in (["ctrl", "End"], ["Down"]):
        await calc("hotkey", keys=keys)
        await calc("settle", timeout_ms=3000, quiet_ms=100)
    assert await calc.tool("freeze_panes", rows=1, columns=2) == "1 rows and 2 columns stay in view"
    assert await calc.saved("//part[@sheet='plain']//x:pane/@xSplit") == ["2"]
    assert await calc.saved("//part[@sheet='plain']//x:pane/@ySplit") == ["1"]
    assert await calc.saved("//part[@sheet='plain']//x:sheetView/@topLeftCell") == ["A1"]
    assert await calc.tool("freeze_panes", rows=2) == "2 rows and 0 columns stay in view"
    assert await calc.saved("//part[@sheet='plain']//x:pane/@ySplit") == ["2"]
    assert await calc.tool("freeze_panes") == "0 rows and 0 columns stay in view"
    assert await calc.saved("//part[@sheet='plain']//x:pane/@ySplit") in ([], ["0"])


async def test_a_pivot_table_covers_nothing(calc: Calc) -> None:
    await calc.on("wide")
    table = {"source_sheet": "wide", "table_name": "T", "value_fields": ["Sum"], "row_fields": ["Kind"]}
    before = await calc.column("C")
    told = await calc.tool("create_pivot_table", **table, col_fields=["Year"])
    assert told.startswith("refused: target_cell: the table takes A1:"), told
    assert told.endswith("is filled: take G1, or switch to another sheet first"), told
    assert await calc.column("C") == before
    assert (await calc.tool("create_pivot_table", **table, target_cell="G1")).startswith("table 'T' is at G1:")
    await calc.says("refused: table_name: ...", "create_pivot_table", **table | {"table_name": ""}, target_cell="M1")
    twice = {"source_sheet": "doubled", "table_name": "D", "value_fields": ["C"], "row_fields": ["Name"]}
    told = await calc.tool("create_pivot_table", **twice, target_cell="M1")
    assert told == "refused: source_sheet: several columns are headed 'Qty': rename them first"
    assert await calc.saved("//x:sheets/x:sheet/@name") == [
        "plain",
        "matrix",
        "wide",
        "doubled",
        "locked",
        "merged",
        "broad",
    ]


async def test_a_list_that_the_file_would_cut_or_part_is_refused(calc: Calc) -> None:
    await calc.on("plain")
    for listed, why in (
        ([f"{n:010d}" for n in range(40)], "such a file keeps 255 characters of them, commas included; these are 439"),
        (["Doe", "Smith, J"], "'Smith, J' would become several: such a file parts them by commas"),
    ):
        await calc.says(f"refused: values: {why}", "set_validation_list", column_name="F", values=listed)


async def test_what_can_not_be_sorted_is_said(calc: Calc) -> None:
    await calc.on("merged")
    await calc.tool("set_column_values", column_name="D", data=["=B2*2", "=B3*2", "=B4*2"])
    before = await calc.column("D")
    told = await calc.tool("sort_column", column_name="D", start_index=2)
    assert told.startswith("refused: column_name: D2:D4 holds formulas, and those follow the cells beside them"), told
    assert await calc.column("D") == before
    assert await calc.tool("sort_column", column_name="H", start_index=2) == "refused: column_name: H2 is empty"
    assert await calc.tool("merge_cells", range_str="B3:B4") == "B3:B4 is one cell"
    told = await calc.tool("sort_column", column_name="B", start_index=2)
    assert told == "refused: column_name: B2:B4 has merged cells, which can't be sorted"
    assert await calc.tool("merge_cells", range_str="F2:G2") == "F2:G2 is one cell"
    await calc.tool("set_column_values", column_name="F", data=[3, 2], start_index=2)
    told = await calc.tool("sort_column", column_name="F", start_index=2)
    assert told == "refused: column_name: a merged cell reaches beyond F2:F3, to F2:G3"


async def test_merged_cells_grow_and_are_never_cut(calc: Calc) -> None:
    await calc.on("merged")
    assert await calc.tool("merge_cells", range_str="A6:B6") == "A6:B6 is one cell"
    told = await calc.tool("merge_cells", range_str="B6:C7")
    assert told == "refused: range_str: a merged cell reaches beyond B6:C7, to A6:C7"
    assert await calc.tool("merge_cells", range_str="A6:D6") == "A6:D6 is one cell"
    assert "A6:D6" in await calc.saved("//part[@sheet='merged']//x:mergeCell/@ref")
    assert (await calc.tool("merge_cells", range_str="A8:A8")).startswith("refused: range_str: write a range of two")


async def test_a_second_export_holds_what_has_changed(calc: Calc) -> None:
    await calc.on("plain")
    for value in ("first", "second"):
        await calc.tool("set_cell_value", cell="C2", value=value)
        assert await calc.tool("export_to_csv") == "wrote book.csv"
        assert value.encode() in await calc("read_file", path="Documents/book.csv")
        with pytest.raises(GuestRefused):
            await calc("read_file", path="Documents/book-plain.csv")


async def test_a_csv_holds_what_cells_show(calc: Calc) -> None:
    await calc.on("plain")
    await calc.tool("set_cell_value", cell="C3", value="0.5")
    await calc.tool("set_number_format", range_str="C3", format_type="percentage", decimal_places=1)
    assert await calc.tool("export_to_csv") == "wrote book.csv"
    assert b"fig,5,50.0%," in await calc("read_file", path="Documents/book.csv")
    await calc.tool("set_cell_value", cell="C3", value="9")
    await calc.tool("set_number_format", range_str="C3", format_type="number", decimal_places=0)


async def test_what_covers_a_whole_sheet_ends_soon(calc: Calc) -> None:
    await calc.on("matrix")
    await calc.tool("set_cell_value", cell="A1048576", value="end")
    assert await calc.column("B") == '["Price", 30, 5, 7]'
    assert (await calc.tool("sort_column", column_name="B")) == "B2:B4 sorted, smallest first"
    with pytest.raises(Unfit, match="data_range: at most 2097152 cells"):  # before it reaches the desktop
        await calc.tool("create_chart", chart_type="line", data_range="A1:XFD1048576")
    told = await calc.tool("create_chart", chart_type="line", data_range="A1:A1048576")
    assert told.startswith("refused: data_range: at most 20000 cells")
    assert (await calc.column("A")).endswith(" more")


async def test_a_column_beyond_all_that_is_used_is_empty(calc: Calc) -> None:
    await calc.on("doubled")
    for cell in ("M1", "M2"):
        await calc.tool("set_cell_value", cell=cell, value="2024-02-29")  # the last one that is used, of dates
    assert await calc.column("AB") == '[""]'


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
    await calc.says("refused: the workbook: book.csv may not be written there: choose another folder", "export_to_csv")
    await calc.run("chmod 755 Documents")


@pytest.mark.proof
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
async def test_a_pdf_is_shown_where_there_is_a_viewer(calc: Calc) -> None:
    told = await calc.tool("export_to_pdf", file_path="~/shown.pdf", sheets=["plain"], open_after_export=True)
    assert told == "wrote shown.pdf; Chromium is opening it"
    await calc("wait_window", title="shown.pdf", timeout_ms=25_000)
    await calc.run("pkill chromium; while pgrep chromium; do sleep 0.1; done")


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
