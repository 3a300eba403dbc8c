"""LibreOffice Calc in a desktop: what is seen of a sheet, where it is clicked, and that no key is lost."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from apis.actions.gui import Type
from apis.observation import Element
from apis.plans.action import plan
from apis.prompts.compact import render_compact
from apis.prompts.names import element_names
from apis.tasks.osworld import Open, OpenParameters

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
Guest = Any  # a desktop in a test's words: see conftest.py

ROWS = ["Item,Price,Count", *(f"Pear{n},{3 * n},{n}" for n in range(1, 7))]
VALUES = ["12", "3456", "quince", "7.5", "-8", "=2+3", "end of it", "90210"]
SHOWN = ["12", "3456", "quince", "7.5", "-8", "5", "end of it", "90210"]


async def opened(guest: Guest, name: str = "sheet.csv") -> None:
    await guest("write_file", path=f"Documents/{name}", data="\n".join(ROWS).encode())
    await guest.prepare(Open(parameters=OpenParameters(path=f"/home/user/Documents/{name}")))


async def cells(guest: Guest) -> dict[str, Element]:
    return {e.name: e for e in (await guest.look()).elements if e.tag == "table-cell"}


async def field(guest: Guest, name: str) -> Element:
    return next(e for e in (await guest.look()).elements if e.tag == "text" and e.name == name)


async def carry_out(guest: Guest, action: Type) -> None:
    for call in plan(action, await guest.look()).calls:
        await guest(call.method, **call.args)


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


@pytest.mark.proof
async def test_what_is_typed_by_keys_is_saved_without_loss(guest: Guest):
    await opened(guest)
    start = (await cells(guest))["D2"]
    await guest.act("click", x=start.cx, y=start.cy)
    await guest.act("type_text", text="\n".join(VALUES) + "\n")
    assert [(await cells(guest))[f"D{n}"].text for n in range(2, 10)] == SHOWN
    name_box = next(n for n, e in element_names(await guest.look()).items() if e.name == "Name Box")
    await carry_out(guest, Type(coordinates=name_box, text="B5", overwrite=True, enter=True))
    now = await cells(guest)
    assert [cell.name for cell in now.values() if "foc" in cell.states] == ["B5"]
    at = next(n for n, e in element_names(await guest.look()).items() if e.name == "B5")
    await carry_out(guest, Type(coordinates=at, text="77", overwrite=True, enter=True))
    await guest.act("hotkey", keys=["ctrl", "s"])
    saved = (await guest.text("Documents/sheet.csv")).splitlines()
    assert [line.split(",")[3].strip('"') for line in saved[1:9]] == SHOWN
    assert saved[4].split(",")[1] == "77"
    assert saved[2].split(",")[:2] == ['"Pear2"', "6"]


@pytest.mark.proof
async def test_a_small_prompt_holds_what_is_worked_with_and_dialogs_stand_alone(guest: Guest):
    await opened(guest)
    prompt = render_compact("Go", [], await guest.look(), None)
    lines = prompt.splitlines()
    assert lines[3:6] == ["e1 text Name Box (A1)", "e2 text Input line (Item)", "e3 table-cell A1 Item *"]
    said = {line.partition(" ")[2] for line in lines}
    assert {"page-tab sheet *", "menu File", "push-button Save"} <= said
    assert not any("Bold" in line or "Move Right" in line for line in said)
    assert len(prompt) < 1300
    await guest.act("type_text", text="Changed\n")
    await guest.act("hotkey", keys=["ctrl", "w"])
    look = await guest.look()
    assert {"Save", "Cancel"} <= {e.name for e in look.elements if e.tag == "push-button"}
    assert not [e for e in look.elements if e.tag in ("table-cell", "menu")]
