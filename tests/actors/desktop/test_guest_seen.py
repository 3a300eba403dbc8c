"""What is seen is what shows: scrolled, covered, minimised, valued and unnamed things, and cells, on real desktops."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from actors.desktop.link import GuestLink
from apis.applications import OFFICE
from apis.observation import Element, Observation, from_guest
from apis.prompts.compact import render_compact
from apis.tasks.osworld import Open

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
Guest = Any  # a desktop in a test's words: see conftest.py
PAGE = (
    "<title>Form</title><table><tr><td>Mail<td><input type=checkbox aria-label=weekly checked></table>"
    "<label>Size <select><option>S<option selected>XL</select></label>"
    "<label>Copies <input type=number value=7></label><label>Loud <input type=range max=10 value=3></label>"
    "<progress aria-label=Done max=1 value=0.25></progress>"
    "<p><input placeholder='Your town'><input type=password placeholder=Secret><button></button>"
    "<input type=checkbox><input type=radio checked>"
    "<p><input type=file>" + "".join(f"<p><a href='#{n}'>link {n}</a>" for n in range(150))
)

CSV = "--infilter=Text - txt - csv (StarCalc):44,34,76,1"
MINIMISE = """
from Xlib import X, display
from Xlib.protocol import event
link = display.Display()
root = link.screen().root
number = root.get_full_property(link.intern_atom("_NET_ACTIVE_WINDOW"), 0).value[0]
window = link.create_resource_object("window", number)
asked = event.ClientMessage(window=window, client_type=link.intern_atom("WM_CHANGE_STATE"), data=(32, [3, 0, 0, 0, 0]))
root.send_event(asked, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
link.sync()
"""


async def seen(guest: Guest) -> Observation:
    await guest("settle", timeout_ms=8000, quiet_ms=150)
    return from_guest(await guest("observe"))


def labels(look: Observation, tag: str) -> list[str]:
    return [element.label for element in look.elements if element.tag == tag]


async def test_what_is_scrolled_to_in_a_folder_is_seen(guest: Guest) -> None:
    await guest("launch", argv=["sh", "-c", "mkdir big && cd big && for n in $(seq -w 200); do echo > file$n; done"])
    await guest("settle", timeout_ms=5000)
    await guest.open("pcmanfm", "big", title="big")
    look = await seen(guest)
    assert "file001" in labels(look, "icon")
    assert "file200" not in labels(look, "icon")
    assert f"\nmore: {200 - len(labels(look, 'icon'))} out of view" in render_compact("Go", [], look, None)
    await guest.act("hotkey", keys=["End"])
    look = await seen(guest)
    assert labels(look, "icon")[-1] == "file200"
    assert "file001" not in labels(look, "icon")
    (last,) = [element for element in look.elements if element.label == "file200"]
    await guest.act("click", x=last.cx, y=last.cy)
    await guest.act("hotkey", keys=["F2"])
    assert "file200" in [element.text for element in (await seen(guest)).elements]


async def test_what_is_disabled_is_marked_so(guest: Guest) -> None:
    await guest("write_file", path="a.txt", data=b"a")
    await guest.open("mousepad", "a.txt", title="a.txt")
    await guest.act("click", **await guest.centre("menu", "Edit"))
    lines = render_compact("Go", [], await seen(guest), None).split("\n")
    rows = [line.partition(" ")[2] for line in lines if " menu-item " in line]
    assert {"menu-item Undo (disabled)", "menu-item Copy (disabled)", "menu-item Select All"} <= set(rows)
    await guest.act("hotkey", keys=["Escape"])
    await guest.open("pcmanfm", ".", title="agent")  # of GTK 2
    lines = render_compact("Go", [], await seen(guest), None).split("\n")
    assert any(line.endswith("push-button Next Folder (disabled)") for line in lines)
    assert any(line.endswith("push-button Home Folder") for line in lines)


async def test_a_minimised_window_is_said_to_be_and_covers_nothing(guest: Guest) -> None:
    await guest("write_file", path="Documents/plum.txt", data=b"hello")
    await guest.open("mousepad", "Documents/plum.txt", title="plum.txt")
    await guest.open("xterm", "-T", "one", title="one", accessible=False)
    assert "hello" not in [element.text for element in (await seen(guest)).elements]
    await guest("launch", argv=["python3", "-c", MINIMISE])
    async with asyncio.timeout(60):
        while len(await guest("running")) > 2:  # noqa: ASYNC110 - a guest's
            await asyncio.sleep(0.02)
    look = await seen(guest)
    assert [(window.title, window.minimised) for window in look.windows] == [
        ("plum.txt - Mousepad", False), ("one", True),
    ]  # fmt: skip
    assert "hello" in [element.text for element in look.elements]
    assert not [element for element in look.elements if element.tag == "terminal"]
    assert "w2 one (minimised)" in render_compact("Go", [], look, None)


async def test_what_an_open_menu_covers_is_not_listed(guest: Guest) -> None:
    sheet = "\n".join(",".join(str(row * 9 + column) for column in range(9)) for row in range(20))
    await guest("write_file", path="Documents/g.csv", data=sheet.encode())
    await guest.open(*OFFICE, CSV, "--calc", "Documents/g.csv", title="g.csv")
    await guest.act("click", **await guest.centre("menu", "Data"))
    look = await seen(guest)
    items = [element for element in look.elements if element.tag == "menu-item"]
    assert items
    for element in look.elements:
        under = [i for i in items if i.x <= element.cx < i.x + i.w and i.y <= element.cy < i.y + i.h]
        assert element.tag == "menu-item" or not under, element
    assert "A9" in [element.name for element in look.elements]


async def test_a_page_tells_values_names_states_and_what_is_scrolled_to(guest: Guest) -> None:
    await guest("write_file", path="Documents/t.html", data=PAGE.encode())
    await guest("write_file", path="Documents/plum.txt", data=b"x")
    await guest.open("chromium", "file:///home/agent/Documents/t.html", title="Form")
    look = await seen(guest)
    told = [(element.tag, element.label, "chk" in element.states) for element in look.elements]
    for row in (
        ("check-box", "weekly", True), ("combo-box", "Size (XL)", False), ("spin-button", "Copies (7)", False),
        ("slider", "Loud (3)", False), ("progress-bar", "Done (0.25)", False), ("entry", "Your town", False),
        ("push-button", "push button", False), ("check-box", "check box", False),
        ("radio-button", "radio button", True),
    ):  # fmt: skip
        assert row in told, (row, told)
    assert "Secret" in labels(look, "password-text") + labels(look, "entry"), told
    (button,) = [element for element in look.elements if "Choose File" in element.label]
    await guest.act("click", x=button.cx, y=button.cy)
    await guest("wait_window", title="Open File", accessible=False)
    look = await seen(guest)
    assert "this file dialog can't be read: type a path, then press alt, o" in look.unread
    assert [element.label for element in look.elements if "behind" in element.states]
    assert {"behind"} <= {state for element in look.elements for state in element.states}
    await guest.act("type_text", text="/home/agent/Documents/plum.txt")
    await guest.act("hotkey", keys=["alt", "o"])
    assert "Choose File: plum.txt" in labels(await seen(guest), "push-button")
    await guest("scroll", x=600, y=400, dy=50)
    look = await seen(guest)
    assert look.unread == ""
    assert "link 149" in labels(look, "link") + labels(look, "static")
    assert "link 0" not in labels(look, "link")


RESTORE = """
from Xlib import X, display
from Xlib.protocol import event
link = display.Display()
root = link.screen().root
atom = link.intern_atom
window = link.create_resource_object("window", root.get_full_property(atom("_NET_ACTIVE_WINDOW"), 0).value[0])
both = [atom("_NET_WM_STATE_MAXIMIZED_VERT"), atom("_NET_WM_STATE_MAXIMIZED_HORZ")]
asked = event.ClientMessage(window=window, client_type=atom("_NET_WM_STATE"), data=(32, [0, *both, 2, 0]))
root.send_event(asked, event_mask=X.SubstructureRedirectMask | X.SubstructureNotifyMask)
window.configure(width=900, height=500)
link.sync()
"""


async def agreed(guest: Guest) -> list[Any]:
    """The elements, which an agent that remembers nothing must list alike."""
    await guest("settle", timeout_ms=8000, quiet_ms=150)
    for _ in range(5):  # a button may change late, and a new agent on a busy machine may see nothing in its time
        before = await guest("observe")
        link = await GuestLink.open(guest.desktop, timeout_s=30)
        try:
            new = await type(guest)(guest.provider, guest.desktop, link)("observe")
        finally:
            await link.close()
        if before["elements"] == new["elements"] == (await guest("observe"))["elements"]:
            break
    assert before["elements"] == new["elements"]
    return list(before["elements"])


def states(elements: list[Any], name: str) -> list[str]:
    (found,) = [element for element in elements if element[1] == name and element[0].endswith("button")]
    return list(found[7])


@pytest.mark.proof
async def test_nothing_that_changes_in_calc_is_missed(guest: Guest) -> None:
    await guest("write_file", path="Documents/g.csv", data=b"plum,4\nfig,9\n")
    await guest.open(*OFFICE, CSV, "--calc", "Documents/g.csv", title="g.csv")
    first = await agreed(guest)
    assert "off" in states(first, "Undo")
    assert "chk" not in states(first, "Bold")
    await guest.act("click", **await guest.centre("table-cell", "B1"))
    await guest.act("hotkey", keys=["ctrl", "b"])
    bold = await agreed(guest)
    assert "off" not in states(bold, "Undo")
    assert "chk" in states(bold, "Bold")
    await guest.act("click", **await guest.centre("menu", "View"))
    assert "menu-item" in [element[0] for element in await agreed(guest)]
    await guest.act("click", **await guest.centre("menu", "Toolbars"))
    await guest.act("click", **await guest.centre("check-menu-item", "Drawing"))
    drawing = await agreed(guest)
    assert len(drawing) > len(bold)
    assert "off" in states(drawing, "Redo")
    await guest.act("hotkey", keys=["ctrl", "F5"])  # the sidebar goes
    assert len(await agreed(guest)) < len(drawing)
    await guest("launch", argv=["python3", "-c", RESTORE])
    await guest("settle", timeout_ms=8000, quiet_ms=400)
    small = await agreed(guest)
    assert max(element[3] for element in small) < max(element[3] for element in drawing)
    await guest.act("hotkey", keys=["ctrl", "1"])  # the format of cells
    assert "behind" not in str(await agreed(guest))
    await guest.act("hotkey", keys=["Escape"])
    await guest.act("hotkey", keys=["ctrl", "shift", "o"])  # the preview of pages has other tool bars
    await agreed(guest)


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
