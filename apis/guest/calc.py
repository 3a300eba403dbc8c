"""The functions of LibreOffice Calc, as the agent calls them.

Invariant: the public methods of `CalcTools` are those that `apis/tools/calc.py` declares, with the same parameters; a
call gets the workbook in front, and its answer is one bounded text.
"""

from __future__ import annotations

from typing import Any

from guest.calc_base import Book
from guest.calc_cells import Cells
from guest.calc_looks import Looks
from guest.calc_reports import Reports
from guest.calc_sheets import Sheets
from guest.office import document
from guest.office_base import INFO_CHARS

SERVICE = "com.sun.star.sheet.SpreadsheetDocument"


class CalcTools(Cells, Sheets, Looks, Reports):
    """All of them."""


def tools(desktop: Any, current: Any) -> CalcTools:
    """The functions on the workbook in front. Raises Refused when there is none."""
    return CalcTools(document(desktop, current, SERVICE, "workbook"))


def info(desktop: Any, current: Any) -> str:
    """What the workbook in front holds now, unsaved edits included."""
    return Book(document(desktop, current, SERVICE, "workbook"))._about(INFO_CHARS)
