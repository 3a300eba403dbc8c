"""Checks of every application's functions on the real application; one table of cases per application.

Invariant: `TABLES` has a case for every declared function of each application in it, which a test holds.
"""

from __future__ import annotations

from apis.check import cases_calc, cases_chromium, cases_code, cases_impress, cases_vlc, cases_writer
from apis.check.case import Table

_TABLES = (
    cases_calc.TABLE,
    cases_impress.TABLE,
    cases_writer.TABLE,
    cases_vlc.TABLE,
    cases_chromium.TABLE,
    cases_code.TABLE,
)
TABLES: dict[str, Table] = {table.app: table for table in _TABLES}
