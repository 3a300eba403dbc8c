"""Calc: values of cells and columns.

Invariant: a string is taken as a user types it ('42' becomes a number, '=A1' a formula). A formula that the office does
not understand is refused, and the whole call with it is taken back.
"""

from __future__ import annotations

import json
import re
from typing import Any

import uno
from guest.addresses import letters
from guest.calc.base import CONTENTS, FORMULA, Workbook, address, filled_in, shown, within
from guest.errors import Refused
from guest.office.base import RESULT_CHARS
from guest.paths import wrong

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
        """Type into a cell."""
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
        self._doc.lockControllers()
        try:
            for at, value in enumerate(data):
                if value is not None:
                    cell = cells.getCellByPosition(0, at)
                    before = (cell, cell.NumberFormat, cell.Formula)
                    self._type_into(cell, value, f"data[{at}]")
                    written.append(before)
        except Refused:
            for cell, number_format, formula in written:
                cell.NumberFormat = number_format  # first, for it decides what a text stands for
                cell.Formula = formula
            raise
        finally:
            self._doc.unlockControllers()
        return f"{address(cells.RangeAddress)} written, {len(data)} values"

    def get_column_data(self, *, column_name: str) -> str:
        """The column's values from row 1 on."""
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
        """Copy values with rows and columns exchanged."""
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
        """Sort one column's own cells."""
        cells = self._column_part(column_name, start_index)
        self._changeable(cells, "column_name")
        self._sortable(cells)
        field = uno.createUnoStruct("com.sun.star.table.TableSortField")
        field.Field, field.IsAscending, field.IsCaseSensitive = 0, ascending, False
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
        self._doc.lockControllers()
        try:
            for place, index in enumerate(order):
                self._move(index, index, count + place, area.EndRow)
            self._move(count, 2 * count - 1, 0, area.EndRow)
            for place, (width, visible) in enumerate(looks):
                column = self._sheet.Columns.getByIndex(place)
                if column.Width != width:
                    column.Width = width
                if column.IsVisible != visible:
                    column.IsVisible = visible
        finally:
            self._doc.unlockControllers()
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
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value if isinstance(value, float) else shown(value)
