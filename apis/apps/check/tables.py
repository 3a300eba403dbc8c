"""Checks of every application's functions on the real application; one table of cases per application.

Invariant: `TABLES` has a case for every declared function of each application in it, which a test holds.
"""

from __future__ import annotations

from apis.apps.check.case import Table
from apis.apps.folders import parts

TABLES: dict[str, Table] = {module.TABLE.app: module.TABLE for _, module in parts("cases")}
