"""Calc: the workbook in front, and values of cells and columns.

A string is taken as a user types it ('42' becomes a number, '=A1' a formula). A formula that the office does not
understand is refused, and the whole call with it is taken back.
"""

from __future__ import annotations

import functools
import json
import re
import time
from datetime import datetime, timedelta
from typing import Any

import uno
from guest import Refused, addresses
from guest.addresses import letters
from guest.files import wrong
from guest.office.base import RESULT_CHARS, Document, clipped, struct

CELL_CHARS = 100  # of a cell's text in a result
DATETIME = 2  # com.sun.star.sheet.CellFlags
FORMULA = 16
CONTENTS = 1 | DATETIME | 4 | FORMULA  # values, dates, texts, formulas
ASKED_S = 2.0  # ending the typing takes no time, but for a formula that is not understood: Calc asks about it
INFO_ROWS, INFO_COLUMNS = 60, 52
MAX_NAMES = 20  # of sheets in a list
MIN_ROW = 40  # characters; of a row that does not fit, less says nothing


def shown(value: Any) -> str:
    """A cell's value as a model reads it; a number without a needless fraction."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    return clipped(str(value), CELL_CHARS)


def address(area: Any) -> str:
    """A range address as "A1:C5", a single cell as "A1"."""
    first = addresses.address(area.StartRow, area.StartColumn)
    last = addresses.address(area.EndRow, area.EndColumn)
    return first if first == last else f"{first}:{last}"


def within(inner: Any, other: Any) -> bool:
    """Whether one range address lies in the other."""
    return bool(
        other.StartColumn <= inner.StartColumn
        and inner.EndColumn <= other.EndColumn
        and other.StartRow <= inner.StartRow
        and inner.EndRow <= other.EndRow
    )


def filled_in(cells: Any, kinds: int) -> list[Any]:
    """The addresses within a range of cells whose contents are of these CellFlags."""
    areas, area = cells.queryContentCells(kinds).RangeAddresses, cells.RangeAddress
    # Asked of columns beyond the last that was ever used, the office tells of that one.
    return [each for each in areas if area.StartColumn <= each.StartColumn and each.EndColumn <= area.EndColumn]


def _moment(days: Any, day_0: datetime) -> Any:
    """A date, a time or both, from the days since `day_0`."""
    if not isinstance(days, float) or not -600_000 < days < 2_900_000:
        return days
    moment = day_0 + timedelta(seconds=round(86_400 * days))
    if 0 < days < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d" if days.is_integer() else "%Y-%m-%d %H:%M:%S")


class Workbook(Document):
    """The workbook in front. Methods without an underscore, here and in subclasses, are what a model can call."""

    _service = "com.sun.star.sheet.SpreadsheetDocument"
    _kind = "workbook"
    _reading = frozenset(
        {
            "save", "get_workbook_info", "get_column_data", "switch_active_sheet", "freeze_panes", "set_zoom_level",
            "export_to_csv", "export_to_pdf",
        }
    )  # fmt: skip

    @functools.cached_property
    def _grid(self) -> Any:
        """The view of the cells. Raises Refused where the window shows the print preview instead."""
        if not hasattr(self._view, "ActiveSheet"):
            raise wrong("the window shows the print preview: close that first, by File > Print Preview")
        return self._view

    @functools.cached_property
    def _sheet(self) -> Any:
        """The active sheet. Raises Refused as the view does."""
        return self._grid.ActiveSheet

    def _begin(self) -> None:
        """End the typing into a cell: what was typed counts, and can't replace later what is changed now.

        The command makes Calc look through its menus and tools again, which costs more than many a call.
        """
        began_s = time.monotonic()
        self._dispatch("AcceptFormula")
        if time.monotonic() - began_s > ASKED_S:  # the caller may have given up
            raise wrong("Calc asked about what was typed into a cell, and nothing else was done: try again")

    def _used(self, sheet: Any = None) -> Any:
        """The address of all cells from A1 to the last used one."""
        cursor = (sheet or self._sheet).createCursor()
        cursor.gotoEndOfUsedArea(False)
        area = cursor.RangeAddress
        area.StartColumn = area.StartRow = 0
        return area

    def _range(self, name: str) -> Any:
        return self._sheet.getCellRangeByName(name)

    def _part(self, area: Any, sheet: Any = None) -> Any:
        place = (area.StartColumn, area.StartRow, area.EndColumn, area.EndRow)
        return (sheet or self._sheet).getCellRangeByPosition(*place)

    def _column_part(self, column: str, start: int) -> Any:
        """A column's cells from row `start` to its last one with contents, or to `start` where none follows."""
        end = self._used().EndRow + 1
        if start > end:
            raise wrong(f"start_index: the sheet's last used row is {end}")
        filled = filled_in(self._range(f"{column}{start}:{column}{end}"), CONTENTS)
        return self._range(f"{column}{start}:{column}{max((area.EndRow + 1 for area in filled), default=start)}")

    def _changeable(self, cells: Any, argument: str) -> None:
        """Raise Refused where the office would leave cells as they are without a word."""
        if self._sheet.isProtected() and cells.CellProtection.IsLocked:
            raise wrong(f"{argument}: the sheet {self._sheet.Name!r} is protected: end that by Tools > Protect Sheet")

    def _merged(self, cells: Any) -> Any:
        """The address of `cells`, grown by the merged cells that lie partly within them."""
        cursor = self._sheet.createCursorByRange(cells)
        cursor.collapseToMergedArea()
        return cursor.RangeAddress

    def _whole(self, cells: Any, argument: str) -> None:
        """Raise Refused where a merged cell lies partly within `cells` and partly outside them."""
        if (grown := address(self._merged(cells))) != address(cells.RangeAddress):
            raise wrong(f"{argument}: a merged cell reaches beyond {address(cells.RangeAddress)}, to {grown}")

    def _matrices(self, cells: Any) -> list[Any]:
        """The addresses of the matrix formulas of which a cell lies in `cells`."""
        areas: list[Any] = []
        for part in map(self._part, filled_in(cells, FORMULA)):
            for y, row in enumerate(part.getFormulaArray()):
                for x, text in enumerate(row):
                    if text.startswith("{="):
                        cell = part.getCellByPosition(x, y)
                        if not any(within(cell.RangeAddress, matrix) for matrix in areas):
                            cursor = self._sheet.createCursorByRange(cell)
                            cursor.collapseToCurrentArray()
                            areas.append(cursor.RangeAddress)
        return areas

    def _open_structure(self, argument: str) -> None:
        """Raise Refused where the workbook's sheets may not be changed."""
        self._editable(argument)
        if self._doc.isProtected():
            raise wrong(f"{argument}: the workbook's sheets are protected: end that by Tools > Protect Spreadsheet")

    def _sheet_named(self, name: str, argument: str) -> Any:
        sheets = self._doc.Sheets
        if not sheets.hasByName(name):
            raise wrong(f"{argument}: there is no sheet {name!r}; there are {self._names()}")
        return sheets.getByName(name)

    def _names(self) -> str:
        sheets = self._doc.Sheets
        listed = [sheets.getByIndex(at) for at in range(min(sheets.Count, MAX_NAMES))]
        names = ", ".join(f"{sheet.Name!r}{'' if sheet.IsVisible else ' (hidden)'}" for sheet in listed)
        return names + (f" and {sheets.Count - MAX_NAMES} more" if sheets.Count > MAX_NAMES else "")

    def _free_name(self, name: str, argument: str) -> str:
        if self._doc.Sheets.hasByName(name):
            raise wrong(f"{argument}: there is a sheet {name!r} already: choose another name")
        return name

    def _values(self, cells: Any) -> list[list[Any]]:
        """A range's values by rows: numbers and texts, dates and times as such, errors by the names they show."""
        area = cells.RangeAddress
        rows = [list(row) for row in cells.getDataArray()]
        zero = self._doc.NullDate
        day_0 = datetime(zero.Year, zero.Month, zero.Day)
        for dates in filled_in(cells, DATETIME):
            for row in rows[dates.StartRow - area.StartRow : dates.EndRow - area.StartRow + 1]:
                for x in range(dates.StartColumn - area.StartColumn, dates.EndColumn - area.StartColumn + 1):
                    row[x] = _moment(row[x], day_0)
        if any(value is None for row in rows for value in row):
            for y, row in enumerate(rows):
                for x, value in enumerate(row):
                    row[x] = str(cells.getCellByPosition(x, y).String) if value is None else value
        return rows

    def _about(self, limit: int) -> str:
        """Sheets, size and the first cells, row by row, at most `limit` characters."""
        area = self._used()
        kept = self._kept()
        lines = [f"sheets: {self._names()}; active: {self._sheet.Name!r}; used: {address(area)}{kept}"]
        last_column, last_row = area.EndColumn, area.EndRow
        area.EndRow, area.EndColumn = min(last_row, INFO_ROWS - 1), min(last_column, INFO_COLUMNS - 1)
        lines.append("row: " + " | ".join(addresses.letters(n) for n in range(area.EndColumn + 1)))
        length = sum(map(len, lines)) + 1
        for number, row in enumerate(self._values(self._part(area)), 1):
            line = f"{number}: " + " | ".join(shown(value) for value in row)
            left = limit - 20 - length
            length += len(line) + 1
            if length > limit - 20:
                lines += [f"{line[: left - 3]}..."] if left > MIN_ROW else ["..."]
                break
            lines.append(line)
        else:
            if (area.EndColumn, area.EndRow) != (last_column, last_row):
                lines.append("...")
        return "\n".join(lines)[:limit]


# A formula's ways to another file or program. What INDIRECT computes may name a file, so it takes what is written.
OUTSIDE = re.compile(r"'\s*#|\b(WEBSERVICE|DDE)\s*\(", re.IGNORECASE)
COMPUTED = re.compile(r'\bINDIRECT\w*\s*\((?!\s*"[^"#\[]*"\s*[,;)])', re.IGNORECASE)
MAX_TRANSPOSED = 20_000  # cells
NOT_UNDERSTOOD = range(501, 526)  # error codes of formulas that do not parse or name what there is not
CALCULATED = {502, 503, 504, 519, 522, 523, 524}  # of those, what a formula can come to by its cells' values


class Cells(Workbook):
    """Reading and writing."""

    def _type_into(self, cell: Any, value: Any, argument: str) -> None:
        if cell.ArrayFormula:
            raise wrong(
                f"{argument}: {address(cell.RangeAddress)} is part of the matrix formula {cell.ArrayFormula[:80]}"
            )
        if isinstance(value, bool):
            cell.FormulaLocal = "TRUE" if value else "FALSE"
        elif isinstance(value, int | float):
            cell.Value = value
        else:
            formula = value.startswith("=")
            if formula and OUTSIDE.search(value):
                raise wrong(f"{argument}: a formula reads this workbook only, no other file")
            if formula and COMPUTED.search(value):
                text = 'INDIRECT takes a quoted reference within this workbook, like INDIRECT("B2")'
                raise wrong(f"{argument}: {text}")
            before = cell.Formula if formula else ""
            cell.FormulaLocal = value
            code = cell.getError() if formula else 0
            if code in NOT_UNDERSTOOD and code not in CALCULATED:
                cell.Formula = before
                raise wrong(f"{argument}: Calc does not understand the formula {value[:80]!r} (error {code})")

    def _has_merged(self, cells: Any) -> bool:
        return cells.IsMerged or address(self._merged(cells)) != address(cells.RangeAddress)

    def _over(self, cell: Any) -> str:
        """The merged cell that lies over `cell`, which shows nothing; "" where none does."""
        at, area = cell.CellAddress, self._merged(cell)
        return "" if (at.Column, at.Row) == (area.StartColumn, area.StartRow) else address(area)

    def _uncovered(self, cell: Any, argument: str) -> None:
        """Raise Refused where a merged cell lies over `cell`."""
        if whole := self._over(cell):
            where = f"{address(cell.RangeAddress)} lies in the merged cell {whole}"
            raise wrong(f"{argument}: {where}: write {whole.partition(':')[0]}")

    def set_cell_value(self, *, cell: str, value: str) -> str:
        target = self._range(cell)
        self._changeable(target, "cell")
        self._uncovered(target, "cell")
        self._type_into(target, value, "value")
        return f"{cell} = {shown(target.String)}"

    def set_column_values(self, *, column_name: str, data: list[Any], start_index: int) -> str:
        """Type downwards; None leaves its cell as it is."""
        end = start_index + len(data) - 1
        if end > self._sheet.Rows.Count:
            raise wrong(f"start_index: {len(data)} values do not fit below row {start_index}")
        cells = self._range(f"{column_name}{start_index}:{column_name}{end}")
        self._changeable(cells, "column_name")
        if self._has_merged(cells):
            for at, value in enumerate(data):
                if value is not None:
                    self._uncovered(cells.getCellByPosition(0, at), f"data[{at}]")
        written: list[tuple[Any, int, str]] = []
        with self._drawn_once():
            try:
                for at, value in enumerate(data):
                    if value is not None:
                        cell = cells.getCellByPosition(0, at)
                        before = (cell, cell.NumberFormat, cell.Formula)
                        self._type_into(cell, value, f"data[{at}]")
                        written.append(before)
            except Refused:
                for cell, number_format, formula in written:
                    cell.NumberFormat = number_format  # first, for it decides what a text means
                    cell.Formula = formula
                raise
        return f"{address(cells.RangeAddress)} written, {len(data)} values"

    def get_column_data(self, *, column_name: str) -> str:
        cells = self._column_part(column_name, 1)
        count = cells.RangeAddress.EndRow + 1
        shown_at_most = self._range(f"{column_name}1:{column_name}{min(count, RESULT_CHARS)}")
        values = [row[0] for row in self._values(shown_at_most)]
        parts = [json.dumps(_plain(value), ensure_ascii=False) for value in values]
        text, used = "", 0
        while used < len(parts) and len(text) + len(parts[used]) < RESULT_CHARS - 100:
            text += (", " if used else "") + parts[used]
            used += 1
        more = f" and {count - used} more" if used < count else ""
        return f"{column_name}1:{column_name}{count}: [{text}]{more}"

    def transpose_range(self, *, source_range: str, target_cell: str) -> str:
        source = self._range(source_range)
        area, at = source.RangeAddress, self._range(target_cell).CellAddress
        wide, high = area.EndColumn - area.StartColumn + 1, area.EndRow - area.StartRow + 1
        if wide * high > MAX_TRANSPOSED:
            raise wrong(f"source_range: at most {MAX_TRANSPOSED} cells, not {wide * high}")
        if at.Column + high > self._sheet.Columns.Count or at.Row + wide > self._sheet.Rows.Count:
            raise wrong(f"target_cell: {wide} rows and {high} columns do not fit from {target_cell} on")
        rows = source.getDataArray()
        target = self._sheet.getCellRangeByPosition(at.Column, at.Row, at.Column + high - 1, at.Row + wide - 1)
        turned = tuple(tuple("#N/A" if v is None else v for v in column) for column in zip(*rows, strict=True))
        self._changeable(target, "target_cell")
        for matrix in self._matrices(target):
            if not within(matrix, target.RangeAddress):
                raise wrong(
                    f"target_cell: {address(matrix)} is a matrix formula, of which {address(target.RangeAddress)} would"
                    " replace a part: choose another cell"
                )
        if self._has_merged(target):
            for y, row in enumerate(turned):
                for x, value in enumerate(row):
                    if value != "" and (whole := self._over(target.getCellByPosition(x, y))):
                        raise wrong(
                            f"target_cell: a value would lie under the merged cell {whole}: choose another cell"
                        )
        alike = source.UniqueCellFormatRanges
        groups = [alike.getByIndex(n) for n in range(alike.Count)]
        formats = [(group.NumberFormat, group.RangeAddresses) for group in groups]  # of before: areas may overlap
        target.setDataArray(turned)
        for number_format, parts in formats:
            for part in parts:
                left, top = at.Column + part.StartRow - area.StartRow, at.Row + part.StartColumn - area.StartColumn
                right, bottom = left + part.EndRow - part.StartRow, top + part.EndColumn - part.StartColumn
                self._sheet.getCellRangeByPosition(left, top, right, bottom).NumberFormat = number_format
        return f"{source_range} written to {address(target.RangeAddress)}, rows and columns exchanged"

    def sort_column(self, *, column_name: str, ascending: bool, start_index: int) -> str:
        cells = self._column_part(column_name, start_index)
        self._changeable(cells, "column_name")
        self._sortable(cells)
        field = struct("table.TableSortField", Field=0, IsAscending=ascending, IsCaseSensitive=False)
        descriptor = {prop.Name: prop for prop in cells.createSortDescriptor()}
        descriptor["SortFields"].Value = uno.Any("[]com.sun.star.table.TableSortField", (field,))
        descriptor["ContainsHeader"].Value = False
        descriptor["IsSortColumns"].Value = False
        wanted = tuple(descriptor.values())
        uno.invoke(cells, "sort", (wanted,))
        return f"{address(cells.RangeAddress)} sorted, {'smallest' if ascending else 'largest'} first"

    def _sortable(self, cells: Any) -> None:
        """Raise Refused where the office would leave a column as it was, without a word."""
        where = address(cells.RangeAddress)
        if not filled_in(cells, CONTENTS):
            raise wrong(f"column_name: {where} is empty")
        if formulas := filled_in(cells, FORMULA):  # each would count again where it comes to stand
            raise wrong(
                f"column_name: {address(formulas[0])} holds formulas, and those follow the cells beside them; sort a"
                " column of values"
            )
        self._whole(cells, "column_name")
        if cells.IsMerged:
            raise wrong(f"column_name: {where} has merged cells, which can't be sorted")

    def reorder_columns(self, *, column_order: list[str]) -> str:
        """Move whole columns, as by cutting and pasting, so that formulas go on to mean the same cells."""
        area = self._used()
        self._changeable(self._part(area), "column_order")
        count = area.EndColumn + 1
        named = [self._range(f"{name}1").CellAddress.Column for name in column_order]
        beyond = [name for name, index in zip(column_order, named, strict=True) if index >= count]
        if beyond:
            raise wrong(f"column_order: {beyond[0]} is empty; the columns in use are A to {letters(count - 1)}")
        order = named + [index for index in range(count) if index not in named]
        if 2 * count > self._sheet.Columns.Count:
            raise wrong("column_order: the sheet is too wide to be reordered")
        self._apart(area)
        columns = [self._sheet.Columns.getByIndex(index) for index in order]
        looks = [(column.Width, column.IsVisible) for column in columns]
        with self._drawn_once():
            for place, index in enumerate(order):
                self._move(index, index, count + place, area.EndRow)
            self._move(count, 2 * count - 1, 0, area.EndRow)
            for place, (width, visible) in enumerate(looks):
                column = self._sheet.Columns.getByIndex(place)
                if column.Width != width:
                    column.Width = width
                if column.IsVisible != visible:
                    column.IsVisible = visible
        return f"columns now stand in the order {', '.join(letters(index) for index in order)} of before"

    def _apart(self, area: Any) -> None:
        """Raise Refused where a merged cell or a matrix formula lies over several columns: they can't be moved."""
        for matrix in self._matrices(self._part(area)):
            if matrix.StartColumn != matrix.EndColumn:
                raise wrong(f"column_order: {address(matrix)} is a matrix formula over several columns")
        for index in range(area.EndColumn + 1):
            self._whole(self._sheet.getCellRangeByPosition(index, 0, index, area.EndRow), "column_order")

    def _move(self, first: int, last: int, to: int, end_row: int) -> None:
        source = self._sheet.getCellRangeByPosition(first, 0, last, end_row).RangeAddress
        self._sheet.moveRange(self._sheet.getCellByPosition(to, 0).CellAddress, source)


def _plain(value: Any) -> Any:
    """A value for a list that a model reads."""
    if not isinstance(value, float):
        return shown(value)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value
