"""What saving a workbook costs in processor time, by its number of sheets.

Calc's `save` has no bound, since it writes through an export filter, whose work grows with the sheets.

Invariant: it is counted like every cost here, by the control group of one desktop, the office and the SSH server in it.
"""

from __future__ import annotations

import dataclasses
import statistics

from actors.cluster.checks.apis.cost import APP, counted
from actors.cluster.checks.apis.desk import RealDesk, opened
from actors.desktop.providers.sandbox import cgroups
from actors.desktop.providers.sandbox.provider import SandboxProvider
from apis.apps.calc.cases import WORKBOOK
from apis.apps.check.case import NotSo
from apis.apps.check.run import REFUSED
from apis.apps.check.tables import TABLES
from apis.documents.xlsx import make_xlsx

SHEETS = (1, 11, 21)
SAVES = 7  # of each number of sheets


async def measure(provider: SandboxProvider) -> str:
    """A line for people, from a desktop of its own. Raises as `opened`."""
    first = {WORKBOOK: make_xlsx({"1": [[f"{row}.{column}" for column in range(3)] for row in range(5)]})}
    async with opened(provider, dataclasses.replace(TABLES[APP], files=lambda: first)) as desk:
        spent = [await _saves(desk, sheets) for sheets in SHEETS]
    slope, start = statistics.linear_regression(SHEETS, spent)
    counts = ", ".join(map(str, SHEETS))
    return (
        f"save: {start + slope:.0f} ms of CPU for a workbook of one sheet, {slope:.1f} for each further, empty one"
        f" (a line through {counts} sheets, medians of {SAVES})"
    )


async def _saves(desk: RealDesk, sheets: int) -> float:
    """Milliseconds of processor time that a save of so many sheets takes."""
    folders = counted(desk)
    for number in (*range(1, sheets + 1), 1):
        await _done(desk, "switch_active_sheet", sheet_name=str(number))
    spent = []
    for number in range(SAVES):
        await _done(desk, "set_cell_value", cell="E1", value=str(number))
        await desk.call("settle", timeout_ms=5000, quiet_ms=200)
        before_s = cgroups.cpu_s(folders)
        await _done(desk, "save")
        spent.append(1e3 * (cgroups.cpu_s(folders) - before_s))
    return statistics.median(spent)


async def _done(desk: RealDesk, name: str, **arguments: str) -> None:
    """Call a function. Raises NotSo with what it said where it refuses."""
    said = await desk.tool(name, **arguments)
    if said.startswith(REFUSED):
        raise NotSo(f"{name}: {said}")
