"""The functions of LibreOffice Calc, as the agent calls them.

Invariant: `CalcTools` has the public methods that `apis/apps/calc/functions.py` declares, with the same parameters. A
call gets the workbook in front, and its answer is one bounded text.
"""

from __future__ import annotations

import json
import time
from typing import Any

from guest.addresses import Place
from guest.calc.base import Workbook
from guest.calc.cells import Cells
from guest.calc.looks import Looks
from guest.calc.reports import Reports
from guest.calc.sheets import Sheets
from guest.office.base import INFO_CHARS
from guest.office.office import document
from guest.screen.grid import filled

CELLS_S = 0.5  # for reading them
SERVICE = "com.sun.star.sheet.SpreadsheetDocument"


class CalcTools(Cells, Sheets, Looks, Reports):
    """All of them."""


def tools(desktop: Any, current: Any) -> CalcTools:
    """The functions on the workbook in front. Raises Refused when there is none."""
    return CalcTools(document(desktop, current, SERVICE, "workbook"))


def cells(desktop: Any, current: Any, first: Place, last: Place) -> str:
    """What the filled cells of the sheet in front show, of those looked for as the bus's are: [row, column, text]s."""
    sheet = Workbook(document(desktop, current, SERVICE, "workbook"))._sheet
    until = time.monotonic() + CELLS_S
    part = sheet.getCellRangeByPosition(first[1], first[0], last[1], last[0])
    found = filled(
        (0, 0),
        (last[0] - first[0], last[1] - first[1]),
        lambda row, column: str(part.getCellByPosition(column, row).String),
        lambda: time.monotonic() > until,
    )
    return json.dumps([[first[0] + row, first[1] + column, text] for (row, column), text in found.items()])


def info(desktop: Any, current: Any) -> str:
    """What the workbook in front holds now, unsaved edits included."""
    return Workbook(document(desktop, current, SERVICE, "workbook"))._about(INFO_CHARS)
