"""The functions of LibreOffice Calc, as `apis/apps/calc.yaml` declares them. Charts, tables and lists are here."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import Any

from guest.addresses import Place, filled, letters
from guest.calc.cells import CONTENTS, Cells, Workbook, address, filled_in
from guest.calc.sheets import Looks, Sheets
from guest.files import wrong
from guest.office.base import enum, free_name, struct

DIAGRAMS = {"column": "Bar", "bar": "Bar", "line": "Line", "pie": "Pie", "area": "Area", "scatter": "XY"}
MAX_FIELDS = 100
MAX_CHARTED = 20_000  # cells
MAX_LISTED = 255  # characters of all values together, in the formats of Excel
CHART_SIZE = (12_000, 8_000)  # 1/100 mm


class Reports(Workbook):
    """Pivot tables, charts, validation."""

    def set_validation_list(self, *, column_name: str, values: list[str]) -> str:
        for value in values:
            if not value or any(c in '"\n\t' for c in value):
                raise wrong(f"values: {value[:40]!r} can't stand in a list: no empty text, quote, tab or new line")
        parted = next((value for value in values if "," in value), None)
        if parted is not None and "Excel" in self._format():
            raise wrong(f"values: {parted[:40]!r} would become several: such a file parts them by commas")
        long = len(",".join(values))
        if long > MAX_LISTED and "Excel" in self._format():
            raise wrong(f"values: such a file keeps {MAX_LISTED} characters of them, commas included; these are {long}")
        cells = self._range(f"{column_name}1:{column_name}{self._sheet.Rows.Count}")
        self._changeable(cells, "column_name")
        rule = cells.Validation
        rule.Type = enum("sheet.ValidationType", "LIST")
        rule.setFormula1(";".join(f'"{value}"' for value in values))
        rule.ShowList = 1
        rule.IgnoreBlankCells = rule.ShowErrorMessage = True
        rule.ErrorAlertStyle = enum("sheet.ValidationAlertStyle", "STOP")
        cells.Validation = rule
        return f"column {column_name} takes {', '.join(map(repr, values))[:300]}"

    def create_pivot_table(
        self,
        *,
        source_sheet: str,
        table_name: str,
        value_fields: list[str],
        row_fields: list[str] | None,
        col_fields: list[str] | None,
        aggregation_function: str,
        target_cell: str,
    ) -> str:
        """Make a pivot table on the active sheet."""
        sheet = self._sheet_named(source_sheet, "source_sheet")
        area = self._block(sheet)
        wide = min(area.EndColumn - area.StartColumn + 1, MAX_FIELDS)
        head = [sheet.getCellByPosition(area.StartColumn + at, area.StartRow) for at in range(wide)]
        headers = [cell.String for cell in head]
        chosen = [
            *((name, "value_fields", "DATA") for name in value_fields),
            *((name, "row_fields", "ROW") for name in row_fields or ()),
            *((name, "col_fields", "COLUMN") for name in col_fields or ()),
        ]
        fields = [(_field(name, headers, area, argument), argument, kind) for name, argument, kind in chosen]
        if len({header for header, _, _ in fields}) < len(fields):
            raise wrong("value_fields, row_fields and col_fields: a field can be named only once")
        doubled = next((header for header, _, _ in fields if headers.count(header) > 1), None)
        if doubled is not None:
            raise wrong(f"source_sheet: several columns are headed {doubled!r}: rename them first")
        at = self._range(target_cell).CellAddress
        inside = area.StartColumn <= at.Column <= area.EndColumn and area.StartRow <= at.Row <= area.EndRow
        if at.Sheet == area.Sheet and inside:
            free = f"{letters(self._used().EndColumn + 2)}1"
            raise wrong(f"target_cell: {target_cell} lies in the data; take {free}, or switch to another sheet first")
        if not table_name:
            raise wrong("table_name: write a name for the new table like 'Sums'")
        self._open_structure("target_cell")  # its size is measured on a sheet of its own
        self._changeable(self._sheet.getCellByPosition(at.Column, at.Row), "target_cell")
        tables = self._sheet.DataPilotTables
        if tables.hasByName(table_name):
            raise wrong(f"table_name: there is a table {table_name!r} already: choose another name")
        made = tables.createDataPilotDescriptor()
        made.setSourceRange(area)
        for header, _, kind in fields:
            field = made.DataPilotFields.getByName(header)
            field.Orientation = enum("sheet.DataPilotFieldOrientation", kind)
            if kind == "DATA":
                field.Function = enum("sheet.GeneralFunction", aggregation_function.upper())
        self._refuse_overwriting(self._size_of(made), at)
        tables.insertNewByName(table_name, at, made)
        return f"table {table_name!r} is at {address(tables.getByName(table_name).OutputRange)}"

    def _block(self, sheet: Any) -> Any:
        """The address of the first filled cell and all that hangs together with it: an empty row or column ends it."""
        filled = filled_in(self._part(self._used(sheet), sheet), CONTENTS)
        if not filled:
            raise wrong(f"source_sheet: the sheet {sheet.Name!r} is empty")
        first = min(filled, key=lambda area: (area.StartRow, area.StartColumn))
        cursor = sheet.createCursorByRange(sheet.getCellByPosition(first.StartColumn, first.StartRow))
        cursor.collapseToCurrentRegion()
        return cursor.RangeAddress

    def _size_of(self, table: Any) -> tuple[int, int]:
        """Columns and rows of what a pivot table is going to write: it is made on a sheet of its own, and dropped."""
        sheets = self._doc.Sheets
        name = free_name(sheets, (f"pivot {number}" for number in count()))
        sheets.insertNewByName(name, sheets.Count)
        try:
            apart = sheets.getByName(name)
            apart.DataPilotTables.insertNewByName("table", apart.getCellByPosition(0, 0).CellAddress, table)
            area = apart.DataPilotTables.getByName("table").OutputRange
        finally:
            sheets.removeByName(name)
        return area.EndColumn + 1, area.EndRow + 1

    def _refuse_overwriting(self, size: tuple[int, int], at: Any) -> None:
        """Raise Refused where cells that a table of that size would cover hold anything."""
        right, bottom = at.Column + size[0] - 1, at.Row + size[1] - 1
        if right >= self._sheet.Columns.Count or bottom >= self._sheet.Rows.Count:
            raise wrong(f"target_cell: the table has {size[0]} columns and {size[1]} rows, which do not fit there")
        cells = self._sheet.getCellRangeByPosition(at.Column, at.Row, right, bottom)
        filled = filled_in(cells, CONTENTS)
        if filled:
            free = f"{letters(self._used().EndColumn + 2)}1"
            raise wrong(
                f"target_cell: the table takes {address(cells.RangeAddress)}, and {address(filled[0])} is filled:"
                f" take {free}, or switch to another sheet first"
            )

    def create_chart(
        self,
        *,
        chart_type: str,
        data_range: str,
        title: str | None,
        x_axis_title: str | None,
        y_axis_title: str | None,
    ) -> str:
        """Put a chart to the right of the data."""
        axes = (("X", "x_axis_title", x_axis_title), ("Y", "y_axis_title", y_axis_title))
        for _, argument, text in axes:
            if chart_type == "pie" and text is not None:
                raise wrong(f"{argument}: a pie has no axes; leave it out")
        data = self._range(data_range)
        self._changeable(data, "data_range")
        if data.Columns.Count * data.Rows.Count > MAX_CHARTED:
            raise wrong(f"data_range: at most {MAX_CHARTED} cells, not {data.Columns.Count * data.Rows.Count}")
        sheets = self._doc.Sheets
        taken = {name for at in range(sheets.Count) for name in sheets.getByIndex(at).Charts.ElementNames}
        name = next(name for number in range(1, len(taken) + 2) if (name := f"Chart {number}") not in taken)
        at, (wide, high) = data.Position, CHART_SIZE
        box = struct("awt.Rectangle", X=at.X + data.Size.Width + 500, Y=at.Y, Width=wide, Height=high)
        charts = self._sheet.Charts
        charts.addNewByName(name, box, (data.RangeAddress,), True, True)
        chart = charts.getByName(name).EmbeddedObject
        chart.Diagram = chart.createInstance(f"com.sun.star.chart.{DIAGRAMS[chart_type]}Diagram")
        if chart_type == "bar":
            chart.Diagram.Vertical = True  # the office's word for bars that lie
        if title is not None:
            chart.HasMainTitle = True
            chart.Title.String = title
        for axis, _, text in axes:
            if text is not None:
                setattr(chart.Diagram, f"Has{axis}AxisTitle", True)
                getattr(chart.Diagram, f"{axis}AxisTitle").String = text
        return f"{name!r} ({chart_type}) shows {data_range}"

    def set_chart_legend_position(self, *, position: str) -> str:
        charts = self._sheet.Charts
        if charts.Count == 0:
            raise wrong("the active sheet has no chart: make one with create_chart first")
        chart = charts.getByIndex(charts.Count - 1).EmbeddedObject
        chart.HasLegend = position != "none"
        if position != "none":
            chart.Legend.Alignment = enum("chart.ChartLegendPosition", position.upper())
        return f"legend: {position}"


def _field(name: str, headers: list[str], area: Any, argument: str) -> str:
    """The header that `name` means: itself, or column letters. A column without one is no field."""
    columns = {letters(area.StartColumn + at): header for at, header in enumerate(headers) if header.strip()}
    if name in columns.values():
        return name
    if name.upper() in columns:
        return columns[name.upper()]
    there = ", ".join(map(repr, list(columns.values())[:20]))
    raise wrong(f"{argument}: there is no field {name[:40]!r}; there are {there}")


CELLS_S = 0.5  # for reading them


class CalcTools(Cells, Sheets, Looks, Reports):
    """All of them."""


TOOLS = CalcTools


def cells(book: CalcTools, first: Place, last: Place) -> str:
    """What the filled cells of the sheet in front show, of those looked for as the bus's are: [row, column, text]s."""
    until = time.monotonic() + CELLS_S
    part = book._sheet.getCellRangeByPosition(first[1], first[0], last[1], last[0])
    texts = filled(
        (0, 0),
        (last[0] - first[0], last[1] - first[1]),
        lambda row, column: str(part.getCellByPosition(column, row).String),
        lambda: time.monotonic() > until,
    )
    return json.dumps([[first[0] + row, first[1] + column, text] for (row, column), text in texts.items()])
