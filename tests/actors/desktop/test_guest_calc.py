"""LibreOffice Calc in a desktop: what is seen of a sheet, and where it is clicked."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from apis.observation import Element
from apis.tasks.osworld import Open

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
Guest = Any  # a desktop in a test's words: see conftest.py

ROWS = ["Item,Price,Count", *(f"Pear{n},{3 * n},{n}" for n in range(1, 7))]


async def opened(guest: Guest, name: str = "sheet.csv") -> None:
    await guest("write_file", path=f"Documents/{name}", data="\n".join(ROWS).encode())
    await guest.prepare(Open(f"/home/user/Documents/{name}"))


async def cells(guest: Guest) -> dict[str, Element]:
    return {e.name: e for e in (await guest.look()).elements if e.tag == "table-cell"}


async def field(guest: Guest, name: str) -> Element:
    return next(e for e in (await guest.look()).elements if e.tag == "text" and e.name == name)


async def test_cells_are_where_they_are_said_to_be(guest: Guest):
    await opened(guest)
    (window,) = await guest("windows")
    assert window.active
    assert window.w >= 1278
    seen = await cells(guest)
    assert [name for name in seen if name.startswith("B")] == [f"B{n}" for n in range(1, 9)]
    assert [seen[name].text for name in ("A1", "B3", "D2", "B8")] == ["Item", "6", "", ""]
    assert "foc" in seen["A1"].states
    before = seen  # as reported before the window has had its first mouse event
    for name in ("B3", "A1", "C7", "D4", "A8"):
        await guest.act("click", x=before[name].cx, y=before[name].cy)
        assert (await field(guest, "Name Box")).text == name
        now = await cells(guest)
        assert [cell.name for cell in now.values() if "foc" in cell.states] == [name]
        assert (now[name].x, now[name].y) == (before[name].x, before[name].y)
        assert (await field(guest, "Input line")).text == before[name].text
