"""What all functions of Calc share: the workbook in front, its sheets, and refusals that name the argument.

Invariant: values reach the office as typed arguments of its interface only, never inside a command, macro or URL.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

import uno
from guest.errors import Refused

CELL_CHARS = 100  # of a cell's text in a result
RESULT_CHARS = 1900
INFO_CHARS = 4800
DATETIME = 2  # com.sun.star.sheet.CellFlags
INFO_ROWS, INFO_COLUMNS = 60, 26


def wrong(text: str) -> Refused:
    """A refusal that the model reads: the argument's name and what would be right."""
    return Refused("tool_failed", text)


def shown(value: Any) -> str:
    """A cell's value as a model reads it; a number without a needless fraction."""
    if value is None:
        return "#ERROR"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    text = str(value)
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 3] + "..."


def letters(index: int) -> str:
    """A for 0, AA for 26."""
    number, out = index + 1, ""
    while number:
        number, rest = divmod(number - 1, 26)
        out = chr(65 + rest) + out
    return out


def address(area: Any) -> str:
    """A range address as "A1:C5", a single cell as "A1"."""
    first = f"{letters(area.StartColumn)}{area.StartRow + 1}"
    last = f"{letters(area.EndColumn)}{area.EndRow + 1}"
    return first if first == last else f"{first}:{last}"


def prop(name: str, value: Any) -> Any:
    """A named value."""
    made = uno.createUnoStruct("com.sun.star.beans.PropertyValue")
    made.Name, made.Value = name, value
    return made


def enum(kind: str, value: str) -> Any:
    """A value of one of the office's enumerations, `kind` below com.sun.star."""
    return uno.Enum(f"com.sun.star.{kind}", value)


def home() -> str:
    """The user's folder, without links in its path."""
    return os.path.realpath(os.environ["HOME"])


def in_home(path: str, argument: str) -> str:
    """The absolute path of a file below HOME whose folder exists; links that lead out are refused."""
    full = os.path.join(home(), os.path.expanduser(path))
    folder = os.path.realpath(os.path.dirname(full))
    if folder != home() and not folder.startswith(home() + os.sep):
        raise wrong(f"{argument}: the file lies outside the home folder: write a path like ~/Documents/name")
    if not os.path.isdir(folder):
        raise wrong(f"{argument}: there is no folder {os.path.dirname(path)[:80]}")
    full = os.path.join(folder, os.path.basename(full))
    if os.path.islink(full) or os.path.isdir(full):
        raise wrong(f"{argument}: {os.path.basename(full)[:80]} is no regular file")
    return full


def url_of(path: str) -> str:
    """A file's URL."""
    return "file://" + quote(path)


def _moment(days: Any, day_0: datetime) -> Any:
    """A date, a time or both, from the days since `day_0`."""
    if not isinstance(days, float) or not -600_000 < days < 2_900_000:
        return days
    moment = day_0 + timedelta(seconds=round(86_400 * days))
    if 0 < days < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d" if days.is_integer() else "%Y-%m-%d %H:%M:%S")


class Book:
    """The workbook in front. Methods without an underscore, here and in subclasses, are what a model can call."""

    def __init__(self, doc: Any) -> None:
        self._doc = doc
        self._view = doc.CurrentController
        self._sheet = self._view.ActiveSheet

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
        """A column's cells from row `start` to the last used row of the sheet."""
        end = self._used().EndRow + 1
        if start > end:
            raise wrong(f"start_index: the sheet's last used row is {end}")
        return self._range(f"{column}{start}:{column}{end}")

    def _sheet_named(self, name: str, argument: str) -> Any:
        sheets = self._doc.Sheets
        if not sheets.hasByName(name):
            raise wrong(f"{argument}: there is no sheet {name!r}; there are {self._names()}")
        return sheets.getByName(name)

    def _names(self) -> str:
        names = [repr(name) for name in self._doc.Sheets.ElementNames]
        return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")

    def _free_name(self, name: str, argument: str) -> str:
        if self._doc.Sheets.hasByName(name):
            raise wrong(f"{argument}: there is a sheet {name!r} already: choose another name")
        return name

    def _path(self) -> str:
        """The workbook's file."""
        if not self._doc.hasLocation():
            raise wrong("the workbook has no file yet: name it first with ctrl+s")
        return unquote(self._doc.URL.removeprefix("file://"))

    def _values(self, cells: Any) -> list[list[Any]]:
        """A range's values by rows: numbers and texts, dates and times as such, None for an error."""
        area = cells.RangeAddress
        rows = [list(row) for row in cells.getDataArray()]
        zero = self._doc.NullDate
        day_0 = datetime(zero.Year, zero.Month, zero.Day)
        for dates in cells.queryContentCells(DATETIME).RangeAddresses:
            for row in rows[dates.StartRow - area.StartRow : dates.EndRow - area.StartRow + 1]:
                for x in range(dates.StartColumn - area.StartColumn, dates.EndColumn - area.StartColumn + 1):
                    row[x] = _moment(row[x], day_0)
        return rows

    def _about(self, limit: int) -> str:
        """Sheets, size and the first cells, row by row, at most `limit` characters."""
        area = self._used()
        lines = [f"sheets: {self._names()}; active: {self._sheet.Name!r}; used: {address(area)}"]
        last_column, last_row = area.EndColumn, area.EndRow
        area.EndRow, area.EndColumn = min(last_row, INFO_ROWS - 1), min(last_column, INFO_COLUMNS - 1)
        lines.append("row: " + " | ".join(letters(n) for n in range(area.EndColumn + 1)))
        length = sum(map(len, lines)) + 1
        for number, row in enumerate(self._values(self._part(area)), 1):
            line = f"{number}: " + " | ".join(shown(value) for value in row)
            length += len(line) + 1
            if length > limit - 20:
                lines.append("...")
                break
            lines.append(line)
        else:
            if (area.EndColumn, area.EndRow) != (last_column, last_row):
                lines.append("...")
        return "\n".join(lines)[:limit]
