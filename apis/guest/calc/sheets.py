"""Calc: sheets, the view of them, the workbook's files, and how cells, rows and columns look.

Widths are in characters of the default font and heights in points, as spreadsheet files have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from itertools import count
from typing import Any

import uno
from guest.calc.cells import Workbook, address, within
from guest.files import to_write, url_of, wrong
from guest.office.base import RESULT_CHARS, enum, free_name, prop, struct

VIEWERS = ("chromium", "chromium-browser")  # set up with the flags of any other start of it
CSV = "Text - txt - csv (StarCalc)"
BY_VALUE = 3  # com.sun.star.view.DocumentZoomType


class Sheets(Workbook):
    """Sheets and files."""

    def get_workbook_info(self) -> str:
        return self._about(RESULT_CHARS)

    def save(self) -> str:
        return self._save()

    def switch_active_sheet(self, *, sheet_name: str) -> str:
        """Show a sheet, also a hidden one; make it when it is missing."""
        before, sheets = self._sheet.Name, self._doc.Sheets
        made = not sheets.hasByName(sheet_name)
        if made:
            self._open_structure("sheet_name")
            sheets.insertNewByName(sheet_name, sheets.Count)
        sheet = sheets.getByName(sheet_name)
        hidden = not sheet.IsVisible
        if hidden:  # the office goes on showing another one, without a word
            self._open_structure("sheet_name")
            sheet.IsVisible = True
        self._view.ActiveSheet = sheet
        if self._view.ActiveSheet.Name != sheet.Name:
            raise wrong(f"sheet_name: Calc does not show {sheet_name!r}; {before!r} is still active")
        return f"{sheet_name!r} is active" + (" (new)" if made else " (it was hidden)" if hidden else "")

    def rename_sheet(self, *, old_name: str, new_name: str) -> str:
        sheet = self._sheet_named(old_name, "old_name")
        self._open_structure("old_name")
        if old_name.lower() != new_name.lower():
            self._free_name(new_name, "new_name")
        sheet.Name = new_name
        return f"{old_name!r} is now {new_name!r}"

    def copy_sheet(self, *, source_sheet: str, new_sheet_name: str | None) -> str:
        place = self._sheet_named(source_sheet, "source_sheet").RangeAddress.Sheet
        self._open_structure("source_sheet")
        sheets = self._doc.Sheets
        if new_sheet_name is None:
            new_sheet_name = free_name(sheets, (f"{source_sheet}_{number}" for number in count(2)))
        sheets.copyByName(source_sheet, self._free_name(new_sheet_name, "new_sheet_name"), place + 1)
        return f"{new_sheet_name!r} is a copy of {source_sheet!r} and stands at position {place + 1}"

    def reorder_sheets(self, *, sheet_name: str, position: int) -> str:
        place = self._sheet_named(sheet_name, "sheet_name").RangeAddress.Sheet
        self._open_structure("sheet_name")
        last = self._doc.Sheets.Count - 1
        if position > last:
            raise wrong(f"position: write a place from 0 to {last}")
        if position != place:  # the office counts places with the sheet still where it was
            self._doc.Sheets.moveByName(sheet_name, position + (position > place))
        return f"{sheet_name!r} stands at position {position} of 0 to {last}"

    def freeze_panes(self, *, rows: int, columns: int) -> str:
        # The office freezes and frees by the pixels that a cell is seen at, so that the first ones have to be in view.
        chosen, first = self._doc.CurrentSelection, self._sheet.getCellByPosition(0, 0)
        self._view.select(first)
        self._view.freezeAtPosition(columns, rows)
        kept, panes = self._view.getByIndex(0).VisibleRange, self._view.Count
        fits = panes == (1 + bool(rows)) * (1 + bool(columns))
        if not fits:
            self._view.select(first)
            self._view.freezeAtPosition(0, 0)
        self._view.select(chosen)
        if not fits:
            argument = "rows" if rows and kept.EndRow + 1 != rows else "columns"
            raise wrong(f"{argument}: so many do not fit into the window: take fewer, or a smaller zoom")
        return f"{rows} rows and {columns} columns stay in view"

    def set_zoom_level(self, *, zoom_percentage: int) -> str:
        view = self._grid
        view.ZoomType = BY_VALUE
        view.ZoomValue = zoom_percentage
        return f"zoom is {zoom_percentage} %"

    def export_to_csv(self) -> str:
        """Write the active sheet next to the workbook: commas, quotes, UTF-8, values as shown."""
        target = to_write(os.path.splitext(self._path())[0] + ".csv", "the workbook")
        if target == self._path():
            raise wrong("the workbook is that CSV file itself: use save")
        number = self._sheet.RangeAddress.Sheet + 1
        options = f"44,34,76,1,,0,false,true,true,false,false,{number}"
        with tempfile.TemporaryDirectory(prefix=".csv-", dir=os.path.dirname(target)) as folder:
            # Where a sheet is named by its number, its name is added to the file's, and no other is touched.
            self._write(os.path.join(folder, "sheet.csv"), "the workbook", CSV, prop("FilterOptions", options))
            (written,) = os.listdir(folder)
            os.replace(os.path.join(folder, written), target)
        return f"wrote {os.path.basename(target)}"

    def export_to_pdf(self, *, file_path: str | None, sheets: list[str] | None, open_after_export: bool) -> str:
        where = file_path if file_path is not None else os.path.splitext(self._path())[0] + ".pdf"
        target = to_write(where, "file_path")
        data = []
        if sheets is not None:
            chosen = self._doc.createInstance("com.sun.star.sheet.SheetCellRanges")
            for name in sheets:
                sheet = self._sheet_named(name, "sheets")
                chosen.addRangeAddress(self._part(self._used(sheet), sheet).RangeAddress, False)
            data.append(prop("Selection", chosen))
        chosen_data = uno.Any("[]com.sun.star.beans.PropertyValue", tuple(data))
        self._write(target, "file_path", "calc_pdf_Export", prop("FilterData", chosen_data))
        return f"wrote {os.path.basename(target)}{_opened(target) if open_after_export else ''}"


def _opened(path: str) -> str:
    """Have a program show a file, and go on at once; what is said of it."""
    viewer = next(filter(None, map(shutil.which, VIEWERS)), None)
    if viewer is None:
        return "; no program here shows it"
    null = subprocess.DEVNULL
    # Twice removed: the office would never ask how its child had ended.
    subprocess.run(["setsid", "-f", viewer, url_of(path)], stdin=null, stdout=null, stderr=null, check=True, timeout=5)
    return "; Chromium is opening it"


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
        matches = self._sheet.findAll(search)
        areas = matches.RangeAddresses if matches is not None else ()
        rows = {row for area in areas for row in range(area.StartRow, area.EndRow + 1)}
        if not rows:
            raise wrong(f"value: no cell of the sheet {self._sheet.Name!r} holds {value[:80]!r} and nothing else")
        for area in areas:
            self._part(area).Rows.IsVisible = False
        return f"{len(rows)} rows with {value!r} are hidden"

    def set_number_format(self, *, range_str: str, format_type: str, decimal_places: int | None) -> str:
        if decimal_places is not None and format_type not in WITH_DECIMALS:
            raise wrong(f"decimal_places: {format_type} has none; leave it out")
        cells = self._range(range_str)
        self._changeable(cells, "range_str")
        formats = self._doc.NumberFormats
        locale = struct("lang.Locale")  # the office's own
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
        first, _, last = columns.partition(":")
        chosen = self._sized(f"{first}1:{last or first}1", "columns", width, ("width", "characters"), autofit).Columns
        if width is None:
            chosen.OptimalWidth = True
            return f"columns {columns} fit their contents"
        pixels = round(width * PIXELS_PER_CHARACTER + PADDING_PIXELS)
        chosen.Width = round(pixels * MM100_PER_PIXEL)
        return f"columns {columns} are {width:g} characters wide"

    def adjust_row_height(self, *, rows: str, height: float | None, autofit: bool) -> str:
        first, _, last = rows.partition(":")
        chosen = self._sized(f"A{first}:A{last or first}", "rows", height, ("height", "points"), autofit).Rows
        if height is None:
            chosen.OptimalHeight = True
            return f"rows {rows} fit their contents"
        chosen.Height = round(height * MM100_PER_POINT)
        return f"rows {rows} are {height:g} points high"

    def _sized(self, name: str, argument: str, size: float | None, measure: tuple[str, str], autofit: bool) -> Any:
        """Cells whose size may be changed; `measure` is its argument and unit.

        Raises Refused unless either a size is given or `autofit`.
        """
        cells = self._range(name)
        self._changeable(cells, argument)
        if autofit and size is not None:
            raise wrong(f"{measure[0]}: give either a {measure[0]} or autofit=True")
        if not autofit and size is None:
            raise wrong(f"{measure[0]}: give a {measure[0]} in {measure[1]}, or autofit=True")
        return cells
