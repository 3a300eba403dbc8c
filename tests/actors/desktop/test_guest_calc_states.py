"""Hidden, covered, read-only: where functions would say done and change nothing, or another place; on a real Calc."""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from apis.applications import OFFICE
from apis.documents.xlsx import make_xlsx
from apis.observation import Observation, from_guest
from apis.prompts.compact import render_compact
from tests.actors.desktop.calc_workbooks import CELL, SPACES, TABLE
from tests.actors.desktop.offices import booted
from tests.actors.desktop.test_guest_calc_refusals import BOOK, CHANGES, Calc

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

TWO = (("Name", "Qty", None, "note"), ("plum", 4), ("fig", 9), (None,), (None, "rest"), (None, 5))
BLANK = (("Name", None, " ", "Qty"), ("plum", "a", "b", 4))
OLD = "--infilter=Text - txt - csv (StarCalc):44,34,1,1"
PAIRS = ((45292, 0.5), (7, 0.25))
HIDDEN = '<cols><col min="2" max="2" width="9" customWidth="1" hidden="1"/></cols>'
PROTECTED = (
    f'<?xml version="1.0"?><office:document {SPACES} xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
    ' office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.spreadsheet"><office:automatic-styles>'
    '<style:style style:name="h" style:family="table"><style:table-properties table:display="false"/></style:style>'
    '</office:automatic-styles><office:body><office:spreadsheet table:structure-protected="true">'
    f'<table:table table:name="plain"><table:table-row>{CELL}</table:table-row></table:table>'
    '<table:table table:name="secret" table:style-name="h"><table:table-row>'
    f"{CELL}</table:table-row></table:table></office:spreadsheet></office:body></office:document>"
)


def workbook() -> bytes:
    """Sheets: plain, two hidden, to merge in, one with column B hidden, and some that do not begin in A1."""
    sheets: dict[str, Any] = {"plain": TABLE, "secret": TABLE, "over": TABLE, "parts": TABLE, "two": TWO}
    sheets |= {"blank": BLANK, "pairs": PAIRS, "right": [(None,) * 7 + row for row in TABLE]}
    sheets |= {"below": [(None,)] * 8 + list(TABLE), "empty": [(None,)], "kept": TABLE}
    before, made = zipfile.ZipFile(io.BytesIO(make_xlsx(sheets))), io.BytesIO()
    with zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            text = re.sub('name="(secret|kept)"', r'\g<0> state="hidden"', before.read(name).decode())
            after.writestr(name, text.replace("<sheetData>", HIDDEN + "<sheetData>") if "sheet4" in name else text)
    return made.getvalue()


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


async def test_a_hidden_sheet_is_said_to_be_and_shows_when_it_is_switched_to(calc: Calc) -> None:
    assert "sheets: 'plain', 'secret' (hidden), 'over'," in await calc.tool("get_workbook_info")
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
    await calc.says("refused: cell: B6 lies in the merged cell A6:B6: write A6", "set_cell_value", cell="B6", value="x")
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


async def test_a_hidden_column_is_hidden_where_it_comes_to_stand(calc: Calc) -> None:
    await calc.on("parts")
    assert (await calc.tool("reorder_columns", column_order=["B"])).startswith("columns now stand in the order B, A, C")
    hidden = "//part[@sheet='parts']//x:col[@hidden='true']/@{}"
    assert [await calc.saved(hidden.format(bound)) for bound in ("min", "max")] == [["1"], ["1"]]


async def test_a_pivot_table_is_made_of_one_block_of_cells(calc: Calc) -> None:
    await calc.on("empty")
    table = {"source_sheet": "two", "table_name": "T", "value_fields": ["Qty"], "row_fields": ["Name"]}
    assert await calc.tool("create_pivot_table", **table) == "table 'T' is at A1:B6"
    assert (await calc.column("A")).endswith('"Name", "fig", "plum", "Total Result"]')
    assert (await calc.column("B")).endswith(", 9, 4, 13]")
    told = await calc.tool("create_pivot_table", **table | {"source_sheet": "right", "value_fields": ["note"]})
    assert told == "refused: value_fields: there is no field 'note'; there are 'Name', 'Price', 'Qty'"
    await calc.on("two")
    told = await calc.tool("create_pivot_table", **table, target_cell="B2")
    assert told == "refused: target_cell: B2 lies in the data; take F1, or switch to another sheet first"
    told = await calc.tool("create_pivot_table", **table, target_cell="B6")
    assert told.startswith("refused: target_cell: the table takes B6:C11, and B6 is filled: take F1, or"), told


async def test_a_column_without_a_header_is_no_field(calc: Calc) -> None:
    await calc.on("blank")
    table = {"source_sheet": "blank", "table_name": "B", "value_fields": ["Qty"], "target_cell": "H1"}
    for name in ("", " ", "B", "C"):
        told = await calc.tool("create_pivot_table", **table, row_fields=[name])
        assert told == f"refused: row_fields: there is no field {name!r}; there are 'Name', 'Qty'"
    told = await calc.tool("create_pivot_table", **table | {"source_sheet": "right", "value_fields": [""]})
    assert told.startswith("refused: value_fields: there is no field ''; there are"), told


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
async def test_an_encoding_other_than_utf8_is_told(calc: Calc) -> None:
    """The workbook in front is another one for a moment."""
    await calc("write_file", path="Documents/old.csv", data="caf\xe9,1\n".encode("latin-1"))
    await calc("open_window", argv=[*OFFICE, OLD, "--calc", "Documents/old.csv"], title="old.csv", timeout_ms=20_000)
    look = await seen(calc, lambda look: "A1" in cells(look))
    assert cells(look)["A1"] == "caf\xe9"
    assert "; the file's encoding is windows-1252" in look.info
    assert "open for reading only" not in look.info
    await calc("hotkey", keys=["ctrl", "w"])
    await calc("settle", timeout_ms=5000)


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
async def test_a_hidden_sheet_stays_hidden_where_the_sheets_are_protected(calc: Calc) -> None:
    await calc("write_file", path="Documents/protected.fods", data=PROTECTED.encode())
    await calc.open("Documents/protected.fods")
    told = await calc.tool("switch_active_sheet", sheet_name="secret")
    assert told.startswith("refused: sheet_name: the workbook's sheets are protected"), told
    assert "sheets: 'plain', 'secret' (hidden); active: 'plain'" in await calc.tool("get_workbook_info")
