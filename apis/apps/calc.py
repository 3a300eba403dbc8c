"""The functions of LibreOffice Calc under their published names and parameters, and what a small model sees first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from apis.functions.declaration import Function, Param, Tool
from apis.functions.values import MAX_ITEMS
from apis.guest.addresses import ROWS
from apis.observation import Element

MAX_SHEETS = 256
CHARTS = ("column", "bar", "line", "pie", "area", "scatter")
LEGENDS = ("top", "bottom", "left", "right", "none")
ALIGNMENTS = ("left", "center", "right")
FORMATS = (
    "general", "number", "currency", "accounting", "date", "time", "percentage", "fraction", "scientific", "text",
)  # fmt: skip
AGGREGATIONS = ("sum", "count", "average", "max", "min", "product")


def _function(name: str, description: str, *params: Param) -> Function:
    return Function("CalcTools", name, Tool, params, description)


def _range(name: str = "range_str", meaning: str = "cells like 'A1:C10'") -> Param:
    return Param(name, "range", "str", (), meaning=meaning)


def _column(meaning: str = "a column's letters like 'B'") -> Param:
    return Param("column_name", "column", "str", meaning=meaning)


def _start(meaning: str) -> Param:
    return Param("start_index", "integer", "int", (1, ROWS), 2, meaning)


def _optional(name: str, kind: str, published: str, limits: tuple[Any, ...] = (), *, meaning: str = "") -> Param:
    return Param(name, kind, f"Optional[{published}]", limits, None, meaning)


FUNCTIONS: tuple[Function, ...] = (
    _function("get_workbook_info", "List the sheets, which one is active, its size, and the start of its contents."),
    _function("save", "Save the workbook to its own file, in the file's own format."),
    _function("get_column_data", "Read a column of the active sheet, from row 1 to its last used row.", _column()),
    _function(
        "switch_active_sheet",
        "Show a sheet and work on it from now on; a missing one is made.",
        Param("sheet_name", "sheet", "str", meaning="the sheet's name"),
    ),
    _function(
        "set_column_values",
        "Write values downwards into a column.",
        _column(),
        Param("data", "scalars", "List", (MAX_ITEMS,), meaning="numbers or texts, as they would be typed"),
        _start("row of the first value"),
    ),
    _function(
        "highlight_range",
        "Give cells a background colour.",
        _range(),
        Param("color", "rgb", "int", (), 0xFF0000, "0xRRGGBB as a whole number"),
    ),
    _function(
        "transpose_range",
        "Copy the values of a range with rows and columns exchanged.",
        _range("source_range"),
        Param("target_cell", "cell", "str", meaning="upper left cell of the copy"),
    ),
    _function("export_to_csv", "Write the active sheet as a CSV file beside the workbook."),
    _function(
        "sort_column",
        "Sort the values of one column; the other columns stay as they are.",
        _column(),
        Param("ascending", "boolean", "bool", (), True, "False for the largest first"),
        _start("first row to sort; 2 keeps a header"),
    ),
    _function(
        "set_validation_list",
        "Let the cells of a column take only values from a drop-down list.",
        _column(),
        Param("values", "names", "List", (100,), meaning="the texts allowed"),
    ),
    _function(
        "hide_row_data",
        "Hide every row of the active sheet in which a cell holds a value.",
        Param(
            "value", "text", "str", (200,), "N/A", "all of such a cell, as the input line shows it: '50%' and not '0.5'"
        ),
    ),
    _function(
        "reorder_columns",
        "Put the columns of the active sheet into another order; those not named follow in their old order.",
        Param("column_order", "letters", "List", (64,), meaning="columns from the left, like ['B', 'A', 'C']"),
    ),
    _function(
        "create_pivot_table",
        "Summarise a table of a sheet whose first row holds the names of its fields.",
        Param("source_sheet", "sheet", "str", meaning="the sheet with the table"),
        Param("table_name", "text", "str", (64,), meaning="a name for the new table"),
        Param("value_fields", "names", "List", (8,), meaning="fields to compute, by header or column letters"),
        _optional("row_fields", "names", "List", (8,), meaning="fields whose values make the rows"),
        _optional("col_fields", "names", "List", (8,), meaning="fields whose values make the columns"),
        Param("aggregation_function", "choice", "str", AGGREGATIONS, "sum", "how values are put together"),
        Param("target_cell", "cell", "str", (), "A1", "upper left cell of the table on the active sheet"),
    ),
    _function("merge_cells", "Merge the cells of a range into one.", _range()),
    _function(
        "set_cell_value",
        "Write a value or a formula into a cell of the active sheet, as if it were typed.",
        Param("cell", "cell", "str", meaning="a cell like 'B3'"),
        Param("value", "entry", "str", meaning="e.g. '42', 'plum' or '=SUM(B2:B5)'"),
    ),
    _function(
        "format_range",
        "Set colours, weight and alignment of cells; what is None stays.",
        _range(),
        _optional("background_color", "colour", "str", meaning="like '#ffff00' or 'yellow'"),
        _optional("font_color", "colour", "str", meaning="like '#ff0000' or 'red'"),
        _optional("bold", "boolean", "bool", meaning="True or False"),
        _optional("alignment", "choice", "str", ALIGNMENTS, meaning="'left', 'center' or 'right'"),
    ),
    _function(
        "create_chart",
        "Put a chart beside the data.",
        Param("chart_type", "choice", "str", CHARTS, meaning=f"one of {', '.join(CHARTS)}"),
        _range("data_range", "cells with a header row and a first column of labels"),
        _optional("title", "text", "str", (200,), meaning="above the chart"),
        _optional("x_axis_title", "text", "str", (200,), meaning="below the chart"),
        _optional("y_axis_title", "text", "str", (200,), meaning="beside the chart"),
    ),
    _function(
        "freeze_panes",
        "Keep the first rows and columns in view; 0 and 0 frees them.",
        Param("rows", "integer", "int", (0, 1000), 0, "how many rows"),
        Param("columns", "integer", "int", (0, 200), 0, "how many columns"),
    ),
    _function(
        "rename_sheet",
        "Rename a sheet.",
        Param("old_name", "sheet", "str", meaning="its name now"),
        Param("new_name", "sheet", "str", meaning="its new name"),
    ),
    _function(
        "copy_sheet",
        "Copy a sheet; the copy stands right behind it.",
        Param("source_sheet", "sheet", "str", meaning="the sheet to copy"),
        _optional("new_sheet_name", "sheet", "str", meaning="the copy's name"),
    ),
    _function(
        "reorder_sheets",
        "Move a sheet to another place among the sheets.",
        Param("sheet_name", "sheet", "str", meaning="the sheet to move"),
        Param("position", "integer", "int", (0, MAX_SHEETS - 1), meaning="0 is the first place"),
    ),
    _function(
        "set_chart_legend_position",
        "Place the legend of the newest chart of the active sheet.",
        Param("position", "choice", "str", LEGENDS, meaning=f"one of {', '.join(LEGENDS)}"),
    ),
    _function(
        "set_number_format",
        "Choose how numbers are shown.",
        _range(),
        Param("format_type", "choice", "str", FORMATS, meaning=f"one of {', '.join(FORMATS)}"),
        _optional("decimal_places", "integer", "int", (0, 15), meaning="digits after the point"),
    ),
    _function(
        "adjust_column_width",
        "Set the width of columns.",
        Param("columns", "columns", "str", meaning="like 'B' or 'A:C'"),
        _optional("width", "number", "float", (0.1, 255), meaning="in characters"),
        Param("autofit", "boolean", "bool", (), False, "True for the width that the contents need"),
    ),
    _function(
        "adjust_row_height",
        "Set the height of rows.",
        Param("rows", "rows", "str", meaning="like '3' or '1:10'"),
        _optional("height", "number", "float", (1, 409), meaning="in points"),
        Param("autofit", "boolean", "bool", (), False, "True for the height that the contents need"),
    ),
    _function(
        "export_to_pdf",
        "Write sheets as a PDF file.",
        _optional("file_path", "path", "str", (".pdf",), meaning="in your home folder; None: beside the workbook"),
        _optional("sheets", "names", "List", (MAX_SHEETS,), meaning="names of the sheets; None: all"),
        Param("open_after_export", "boolean", "bool", (), False, "True to show the file, if a viewer is installed"),
    ),
    _function(
        "set_zoom_level",
        "Zoom the view.",
        Param("zoom_percentage", "integer", "int", (20, 600), meaning="100 is the normal size"),
    ),
)


CELLS = 40
BUTTONS = {"Save", "Sort Ascending", "Sort Descending", "Select Function"}  # kept of the tool bars
_FIELDS = {"Name Box": 0, "Input line": 1}
_ORDER = {"table-cell": 2, "page-tab": 3, "menu": 5}  # after open menus and fields, before and after the rest


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, Name Box, input line, cells, sheets, other things, menus, a few buttons of the tool bars."""
    cells = nearest([element for element in elements if element.tag == "table-cell"])
    others = [
        element
        for element in elements
        if element.tag != "table-cell" and ("bar" not in element.states or element.name in BUTTONS)
    ]
    return sorted([*cells, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return -1
    if element.tag == "text" and element.name in _FIELDS:
        return _FIELDS[element.name]
    return 6 if "bar" in element.states else _ORDER.get(element.tag, 4)


def nearest(cells: Sequence[Element]) -> list[Element]:
    """At most `CELLS` cells in reading order: the first row, then whole rows from the current cell's outwards.

    Where the first row and the current one do not both fit, each is shown by its cells nearest to the current column.
    """
    if len(cells) <= CELLS:
        return list(cells)
    rows = [list(row) for _, row in groupby(sorted(cells, key=lambda cell: (cell.y, cell.x)), key=lambda cell: cell.y)]
    now = next((at for at, row in enumerate(rows) if any("foc" in cell.states for cell in row)), 0)
    both = sorted({0, now})
    if sum(len(rows[at]) for at in both) > CELLS:
        x = next((cell.x for cell in rows[now] if "foc" in cell.states), rows[now][0].x)
        return [cell for at in both for cell in _around(x, rows[at], CELLS // len(both))]
    kept: list[int] = []
    left = CELLS
    for at in sorted(range(len(rows)), key=lambda at: (at != 0, abs(at - now), at)):
        if len(rows[at]) > left:
            break
        kept.append(at)
        left -= len(rows[at])
    return [cell for at in sorted(kept) for cell in rows[at]]


def _around(x: int, row: Sequence[Element], count: int) -> list[Element]:
    """The `count` cells of a row that are nearest to a place, from left to right."""
    return sorted(sorted(row, key=lambda cell: abs(cell.x - x))[:count], key=lambda cell: cell.x)
