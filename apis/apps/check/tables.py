"""Checks of every application's functions on the real application; one table of cases per application.

Invariant: `TABLES` has a case for every declared function of each application in it, which a test holds.
"""

from __future__ import annotations

from apis.apps.calc import cases as cases_calc
from apis.apps.check.case import Table
from apis.apps.chromium import cases as cases_chromium
from apis.apps.code import cases as cases_code
from apis.apps.impress import cases as cases_impress
from apis.apps.vlc import cases as cases_vlc
from apis.apps.writer import cases as cases_writer

_TABLES = (
    cases_calc.TABLE,
    cases_impress.TABLE,
    cases_writer.TABLE,
    cases_vlc.TABLE,
    cases_chromium.TABLE,
    cases_code.TABLE,
)
TABLES: dict[str, Table] = {table.app: table for table in _TABLES}
