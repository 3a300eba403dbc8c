"""What all functions of Calc share: the workbook in front and its sheets.

Invariant: a sheet is found by its name before anything is changed. A refusal lists what there is.
"""

from __future__ import annotations

import functools
import time
from datetime import datetime, timedelta
from typing import Any

from guest import addresses
from guest.office.base import Document, clipped
from guest.paths import wrong

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


def within(one: Any, other: Any) -> bool:
    """Whether one range address lies in the other."""
    return bool(
        other.StartColumn <= one.StartColumn
        and one.EndColumn <= other.EndColumn
        and other.StartRow <= one.StartRow
        and one.EndRow <= other.EndRow
    )


def filled_in(cells: Any, kinds: int) -> list[Any]:
    """The addresses within a range of cells whose contents are of these CellFlags."""
    found, area = cells.queryContentCells(kinds).RangeAddresses, cells.RangeAddress
    # Asked of columns beyond the last that was ever used, the office tells of that one.
    return [one for one in found if area.StartColumn <= one.StartColumn and one.EndColumn <= area.EndColumn]


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
        """Raise Refused where a merged cell lies partly within `cells` and partly beside them."""
        if (grown := address(self._merged(cells))) != address(cells.RangeAddress):
            raise wrong(f"{argument}: a merged cell reaches beyond {address(cells.RangeAddress)}, to {grown}")

    def _matrices(self, cells: Any) -> list[Any]:
        """The addresses of the matrix formulas of which a cell lies in `cells`."""
        found: list[Any] = []
        for part in map(self._part, filled_in(cells, FORMULA)):
            for y, row in enumerate(part.getFormulaArray()):
                for x, text in enumerate(row):
                    if text.startswith("{="):
                        cell = part.getCellByPosition(x, y)
                        if not any(within(cell.RangeAddress, matrix) for matrix in found):
                            cursor = self._sheet.createCursorByRange(cell)
                            cursor.collapseToCurrentArray()
                            found.append(cursor.RangeAddress)
        return found

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
