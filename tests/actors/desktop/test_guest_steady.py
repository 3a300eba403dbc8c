"""What an agent remembers of LibreOffice is what stands there: a new agent sees the same after every change."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from actors.desktop.link import GuestLink
from apis.applications import OFFICE

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")

Guest = Any  # a desktop in a test's words: see conftest.py
CSV = "--infilter=Text - txt - csv (StarCalc):44,34,76,1"
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


@pytest.mark.slow
async def test_nothing_that_changes_in_writer_is_missed(guest: Guest) -> None:
    text = "\n".join(f"line {number}" for number in range(200))
    await guest("write_file", path="Documents/long.txt", data=text.encode())
    await guest.open(*OFFICE, "--writer", "Documents/long.txt", title="long.txt")
    first = await agreed(guest)
    assert "line 0" in [element[2] for element in first]
    await guest.act("hotkey", keys=["ctrl", "End"])
    last = await agreed(guest)
    assert "line 199" in [element[2] for element in last]
    await guest.act("hotkey", keys=["alt", "F11"])  # the sidebar changes its deck
    await agreed(guest)
    await guest.act("hotkey", keys=["ctrl", "alt", "Up"])  # moves the paragraph up
    assert await agreed(guest)
