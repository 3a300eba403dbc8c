"""Calc: sheets, the view of them, and the workbook's files.

Invariant: files are written below HOME only, and the workbook itself only in its own format.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

import uno
from guest.calc.base import Workbook
from guest.office.base import RESULT_CHARS, prop
from guest.paths import to_write, url_of, wrong

VIEWERS = ("chromium", "chromium-browser")  # set up with the flags of any other start of it
CSV = "Text - txt - csv (StarCalc)"
BY_VALUE = 3  # com.sun.star.view.DocumentZoomType


class Sheets(Workbook):
    """Sheets and files."""

    def get_workbook_info(self) -> str:
        """Sheets, size, contents."""
        return self._about(RESULT_CHARS)

    def save(self) -> str:
        """Write the workbook's file."""
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
        """Rename."""
        sheet = self._sheet_named(old_name, "old_name")
        self._open_structure("old_name")
        if old_name.lower() != new_name.lower():
            self._free_name(new_name, "new_name")
        sheet.Name = new_name
        return f"{old_name!r} is now {new_name!r}"

    def copy_sheet(self, *, source_sheet: str, new_sheet_name: str | None) -> str:
        """Copy to the place behind the source."""
        place = self._sheet_named(source_sheet, "source_sheet").RangeAddress.Sheet
        self._open_structure("source_sheet")
        sheets = self._doc.Sheets
        number = 2
        while new_sheet_name is None:
            name = f"{source_sheet}_{number}"
            new_sheet_name = None if sheets.hasByName(name) else name
            number += 1
        sheets.copyByName(source_sheet, self._free_name(new_sheet_name, "new_sheet_name"), place + 1)
        return f"{new_sheet_name!r} is a copy of {source_sheet!r} and stands at position {place + 1}"

    def reorder_sheets(self, *, sheet_name: str, position: int) -> str:
        """Move to a place, counted from 0."""
        place = self._sheet_named(sheet_name, "sheet_name").RangeAddress.Sheet
        self._open_structure("sheet_name")
        last = self._doc.Sheets.Count - 1
        if position > last:
            raise wrong(f"position: write a place from 0 to {last}")
        if position != place:  # the office counts places with the sheet still where it was
            self._doc.Sheets.moveByName(sheet_name, position + (position > place))
        return f"{sheet_name!r} stands at position {position} of 0 to {last}"

    def freeze_panes(self, *, rows: int, columns: int) -> str:
        """Freeze, or free with 0 and 0."""
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
        """Zoom."""
        view = self._grid
        view.ZoomType = BY_VALUE
        view.ZoomValue = zoom_percentage
        return f"zoom is {zoom_percentage} %"

    def export_to_csv(self) -> str:
        """Write the active sheet beside the workbook: commas, quotes, UTF-8, values as shown."""
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
        """Write a PDF."""
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
    viewer = next((found for name in VIEWERS if (found := shutil.which(name))), None)
    if viewer is None:
        return "; no program here shows it"
    null = subprocess.DEVNULL
    # Twice removed: the office would never ask how its child had ended.
    subprocess.run(["setsid", "-f", viewer, url_of(path)], stdin=null, stdout=null, stderr=null, check=True, timeout=5)
    return "; Chromium is opening it"
