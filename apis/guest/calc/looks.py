"""Calc: how cells, rows and columns look.

Invariant: nothing here changes a value. Widths are in characters of the default font and heights in points, as the
published functions and spreadsheet files have them.
"""

from __future__ import annotations

from typing import Any

import uno
from guest.calc.base import Workbook, address, within
from guest.office.base import enum
from guest.paths import wrong

MM100_PER_PIXEL = 2540 / 96
PIXELS_PER_CHARACTER, PADDING_PIXELS = 7, 5  # of a column, as spreadsheet files count them
MM100_PER_POINT = 2540 / 72
KINDS = {  # com.sun.star.util.NumberFormat
    "date": 2, "time": 4, "currency": 8, "number": 16, "scientific": 32, "fraction": 64, "percentage": 128, "text": 256,
}  # fmt: skip
WITH_DECIMALS = ("number", "currency", "accounting", "percentage", "scientific")


class Looks(Workbook):
    """Appearance."""

    def highlight_range(self, *, range_str: str, color: int) -> str:
        """Background colour."""
        cells = self._range(range_str)
        self._changeable(cells, "range_str")
        cells.CellBackColor = color
        return f"{range_str} has the background #{color:06x}"

    def format_range(
        self,
        *,
        range_str: str,
        background_color: str | None,
        font_color: str | None,
        bold: bool | None,
        alignment: str | None,
    ) -> str:
        """Colours, weight, alignment."""
        cells, done = self._range(range_str), []
        self._changeable(cells, "range_str")
        if background_color is not None:
            cells.CellBackColor = int(background_color[1:], 16)
            done.append(f"background {background_color}")
        if font_color is not None:
            cells.CharColor = int(font_color[1:], 16)
            done.append(f"font {font_color}")
        if bold is not None:
            cells.CharWeight = 150.0 if bold else 100.0
            done.append("bold" if bold else "not bold")
        if alignment is not None:
            cells.HoriJustify = enum("table.CellHoriJustify", alignment.upper())
            done.append(alignment)
        if not done:
            raise wrong("format_range: give background_color, font_color, bold or alignment")
        return f"{range_str}: {', '.join(done)}"

    def merge_cells(self, *, range_str: str) -> str:
        """Merge into one cell."""
        cells = self._range(range_str)
        if address(cells.RangeAddress) == address(cells.getCellByPosition(0, 0).RangeAddress):
            raise wrong("range_str: write a range of two cells or more like 'A1:C1'")
        self._changeable(cells, "range_str")
        self._whole(cells, "range_str")
        for matrix in self._matrices(cells):
            if not within(matrix, cells.RangeAddress):
                raise wrong(f"range_str: {address(matrix)} is a matrix formula, of which {range_str} would take a part")
        cells.merge(False)  # the office leaves a range with merged cells in it as it is, without a word
        cells.merge(True)
        return f"{range_str} is one cell"

    def hide_row_data(self, *, value: str) -> str:
        """Hide rows with a cell whose entry is `value`."""
        if not value:
            raise wrong("value: write the text of the cells whose rows are to be hidden, like 'N/A'")
        search = self._sheet.createSearchDescriptor()
        search.SearchString = value
        search.SearchWords = True  # the whole cell
        search.SearchCaseSensitive = True
        search.SearchRegularExpression = search.SearchWildcard = False
        search.SearchType = 1  # values, not formulas
        self._changeable(self._part(self._used()), "value")
        found = self._sheet.findAll(search)
        areas = found.RangeAddresses if found is not None else ()
        rows = {row for area in areas for row in range(area.StartRow, area.EndRow + 1)}
        if not rows:
            raise wrong(f"value: no cell of the sheet {self._sheet.Name!r} holds {value[:80]!r} and nothing else")
        for area in areas:
            self._part(area).Rows.IsVisible = False
        return f"{len(rows)} rows with {value!r} are hidden"

    def set_number_format(self, *, range_str: str, format_type: str, decimal_places: int | None) -> str:
        """Choose the form of numbers."""
        if decimal_places is not None and format_type not in WITH_DECIMALS:
            raise wrong(f"decimal_places: {format_type} has none; leave it out")
        cells = self._range(range_str)
        self._changeable(cells, "range_str")
        formats = self._doc.NumberFormats
        locale = uno.createUnoStruct("com.sun.star.lang.Locale")  # the office's own
        places = 2 if decimal_places is None else decimal_places
        if format_type == "general":
            key = 0
        elif format_type == "accounting":
            point = "." + "0" * places if places else ""
            key = self._key(f'_($* #,##0{point}_);_($* (#,##0{point});_($* "-"??_);_(@_)', locale)
        else:
            key = formats.getStandardFormat(KINDS[format_type], locale)
            if format_type in WITH_DECIMALS:
                thousands = format_type in ("number", "currency")
                key = self._key(formats.generateFormat(key, locale, thousands, False, places, 1), locale)
        cells.NumberFormat = key
        return f"{range_str} is shown as {format_type}"

    def _key(self, code: str, locale: Any) -> int:
        formats = self._doc.NumberFormats
        key = formats.queryKey(code, locale, False)
        return key if key != -1 else formats.addNew(code, locale)

    def adjust_column_width(self, *, columns: str, width: float | None, autofit: bool) -> str:
        """Set or fit widths."""
        first, _, last = columns.partition(":")
        cells = self._range(f"{first}1:{last or first}1")
        self._changeable(cells, "columns")
        chosen = cells.Columns
        if autofit and width is not None:
            raise wrong("width: give either a width or autofit=True")
        if autofit:
            chosen.OptimalWidth = True
            return f"columns {columns} fit their contents"
        if width is None:
            raise wrong("width: give a width in characters, or autofit=True")
        pixels = round(width * PIXELS_PER_CHARACTER + PADDING_PIXELS)
        chosen.Width = round(pixels * MM100_PER_PIXEL)
        return f"columns {columns} are {width:g} characters wide"

    def adjust_row_height(self, *, rows: str, height: float | None, autofit: bool) -> str:
        """Set or fit heights."""
        first, _, last = rows.partition(":")
        cells = self._range(f"A{first}:A{last or first}")
        self._changeable(cells, "rows")
        chosen = cells.Rows
        if autofit and height is not None:
            raise wrong("height: give either a height or autofit=True")
        if autofit:
            chosen.OptimalHeight = True
            return f"rows {rows} fit their contents"
        if height is None:
            raise wrong("height: give a height in points, or autofit=True")
        chosen.Height = round(height * MM100_PER_POINT)
        return f"rows {rows} are {height:g} points high"
