"""Checks of every application's functions on the real application; one table of cases per application.

Invariant: `TABLES` has a case for every declared function of each application in it, which a test holds.
"""

from __future__ import annotations

from apis.check import cases_calc, cases_writer
from apis.check.case import Table

TABLES: dict[str, Table] = {table.app: table for table in (cases_calc.TABLE, cases_writer.TABLE)}
