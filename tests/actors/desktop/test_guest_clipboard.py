"""What was copied can be pasted after its window has closed, on real programs."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from apis.applications import OFFICE

Guest = Any  # a desktop in a test's words: see conftest.py
SILENT = """
from Xlib import X, display
link = display.Display()
window = link.screen().root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
window.set_selection_owner(link.intern_atom("CLIPBOARD"), X.CurrentTime)
link.sync()
open("owned", "w").close()
while True:
    link.next_event()
"""

# Copies, and ends only when it is ended; the manager that it starts is asked whether it serves, as `settle` asks it.
SERVED = """
import threading
from Xlib import X, display
from guest.session.clipboard import Clipboard
manager, link = Clipboard(), display.Display()
waits, goes_on = threading.Event(), threading.Event()
take = manager._take
manager._take = lambda event: (waits.set(), goes_on.wait(), take(event))
manager.start()
window = link.screen().root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
def own():
    window.set_selection_owner(link.intern_atom("CLIPBOARD"), X.CurrentTime)
    link.sync()
own()
waits.wait()
print(manager.busy())
goes_on.set()
while manager.busy():
    pass
print(manager.busy())
"""


async def open_text(guest: Guest, name: str, text: str = "") -> None:
    await guest("write_file", path=f"Documents/{name}", data=text.encode())
    await guest.open("mousepad", f"Documents/{name}", title=name)


async def copy_all(guest: Guest) -> None:
    await guest.act("hotkey", keys=["ctrl", "a"])
    await guest.act("hotkey", keys=["ctrl", "c"])


async def pasted(guest: Guest, name: str) -> str:
    """What a new document holds after a paste."""
    await open_text(guest, name)
    await guest.act("hotkey", keys=["ctrl", "v"])
    await guest.act("hotkey", keys=["ctrl", "s"])
    return await guest.text(f"Documents/{name}")


async def test_a_text_outlives_its_window_however_that_ends(guest: Guest) -> None:
    long = "".join(f"line {n} é 日本\n" for n in range(40_000))  # it comes in pieces
    await open_text(guest, "long.txt", long)
    await copy_all(guest)
    await guest.act("hotkey", keys=["ctrl", "q"])
    assert await pasted(guest, "b.txt") == long
    await open_text(guest, "killed.txt", "in the end")  # the window before is there, too, of the same program
    await copy_all(guest)
    await guest.act("hotkey", keys=["ctrl", "w"])
    assert await pasted(guest, "c.txt") == "in the end"
    await copy_all(guest)
    await guest("run", argv=["pkill", "-9", "mousepad"], timeout_ms=5000)
    await guest("settle", timeout_ms=5000)
    assert await pasted(guest, "d.txt") == "in the end"


async def test_files_outlive_their_window_and_cut_ones_are_moved_once(guest: Guest) -> None:
    await guest("write_file", path="Documents/one/a.txt", data=b"a")
    await guest("write_file", path="Documents/one/b.txt", data=b"b")
    await guest("run", argv=["mkdir", "Documents/two", "Documents/three"], timeout_ms=5000)
    await guest.open("pcmanfm", "Documents/one", title="one")
    await copy_all(guest)
    await guest.act("hotkey", keys=["alt", "F4"])
    assert await guest.titles() == []
    await guest.open("pcmanfm", "Documents/two", title="two")
    await guest.act("hotkey", keys=["ctrl", "v"])
    assert [await guest.text(f"Documents/two/{name}.txt") for name in "ab"] == ["a", "b"]
    await guest.act("hotkey", keys=["ctrl", "a"])
    await guest.act("hotkey", keys=["ctrl", "x"])
    await guest.open("pcmanfm", "Documents/three", title="three")
    await guest.act("hotkey", keys=["ctrl", "v"])
    assert [await guest.text(f"Documents/three/{name}.txt") for name in "ab"] == ["a", "b"]
    assert [await guest.text(f"Documents/two/{name}.txt") for name in "ab"] == [None, None]


async def test_a_program_that_never_gives_what_it_copied_is_in_nobodys_way(guest: Guest) -> None:
    await guest("write_file", path="silent.py", data=SILENT.encode())
    await guest("launch", argv=["python3", "silent.py"])
    await open_text(guest, "a.txt", "mine")
    assert await guest.text("owned") == ""
    await copy_all(guest)
    await guest.act("hotkey", keys=["ctrl", "q"])
    assert await guest.titles() == []
    assert await pasted(guest, "b.txt") == "mine"


async def test_a_program_that_waits_for_the_manager_is_unrest(guest: Guest) -> None:
    env = {"PYTHONPATH": "/opt/computerrl"}
    seen = await guest("run", argv=["python3", "-c", SERVED], env=env, timeout_ms=10_000)
    assert seen.out.split() == ["True", "False"]


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
async def test_a_text_of_the_browser_and_one_of_the_office_outlive_them(guest: Guest) -> None:
    await guest("write_file", path="page.html", data=b"<title>Page</title><textarea autofocus>from a page</textarea>")
    await guest.open("chromium", "page.html", title="Page")
    await copy_all(guest)
    await guest.act("hotkey", keys=["ctrl", "shift", "w"])
    assert await pasted(guest, "b.txt") == "from a page"
    await guest.act("hotkey", keys=["ctrl", "q"])
    await guest("write_file", path="Documents/text.txt", data="from the office é".encode())
    await guest.open(*OFFICE, "--writer", "Documents/text.txt", title="text.txt")
    await copy_all(guest)
    await guest.act("hotkey", keys=["ctrl", "q"])
    assert await guest.titles() == []
    assert await pasted(guest, "c.txt") == "from the office é"
