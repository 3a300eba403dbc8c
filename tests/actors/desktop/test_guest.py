"""The in-guest agent on real desktops: what it sees, what its input does, and when it calls a desktop quiet."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

import pytest
from PIL import Image

from actors.errors import GuestRefused
from apis.observation import from_guest

HARD = "The quick Brown fox, (lazy) dog; 0123456789! {a}[b]<c>|d&e%f$g#h@i^j*k+l=m~n`o\"p'q_r-s/t?u:v\\ üλ→\tend"


Guest = Any  # a desktop in a test's words: see conftest.py


async def test_an_editor_is_seen_typed_into_and_saved(guest: Guest):
    await guest("write_file", path="Documents/plum.txt", data=b"hello\nworld")
    await guest.open("mousepad", "Documents/plum.txt", title="plum.txt")
    frame = await guest("observe")
    assert ("text", "", "hello\nworld") in [element[:3] for element in frame["elements"]]
    assert [(w["class"], w["title"], w["active"]) for w in frame["windows"]] == [
        ("Mousepad", "plum.txt - Mousepad", True)
    ]
    observation = from_guest(frame)
    assert observation.app == "text_editor"
    assert [e.label for e in observation.elements if e.tag == "menu"] == [
        "File", "Edit", "Search", "View", "Document", "Help",
    ]  # fmt: skip
    await guest.act("click", **await guest.centre("menu", "File"))
    assert ("menu-item", "Save As...") in await guest.rows()
    await guest.act("hotkey", keys=["Escape"])
    assert ("menu-item", "Save As...") not in await guest.rows()
    await guest.act("hotkey", keys=["ctrl", "End"])
    await guest.act("type_text", text="\n" + HARD)
    await guest.act("hotkey", keys=["ctrl", "s"])
    assert await guest.text("Documents/plum.txt") == "hello\nworld\n" + HARD


async def test_a_file_dialog_has_saved_when_the_desktop_is_quiet(guest: Guest):
    """GTK swallows a hasty Return, and acts on one only half a second later."""
    await guest.open("mousepad", title="mousepad")
    for name in ("/home/agent/Documents/one.txt", "/home/agent/two.txt"):
        await guest.act("type_text", text="x")
        await guest.act("hotkey", keys=["ctrl", "shift", "s"])
        assert "Save As" in await guest.titles()
        await guest("hotkey", keys=["ctrl", "a"])
        await guest.act("type_text", text=f"{name}\n")
        assert await guest.text(name.removeprefix("/home/agent/")) is not None
        assert "Save As" not in await guest.titles()


async def test_a_file_manager_is_seen_and_renames(guest: Guest):
    for name in ("kiwi.txt", "plum.txt"):
        await guest("write_file", path=f"Documents/{name}", data=b"")
    await guest("run", argv=["mkdir", "-p", "Documents/Archive/2024"])
    await guest.open("pcmanfm", "Documents", title="Documents")
    assert [label for tag, label in await guest.rows() if tag == "icon"] == ["Archive", "kiwi.txt", "plum.txt"]
    await guest.act("click", **await guest.centre("icon", "plum.txt"))
    await guest.act("hotkey", keys=["F2"])
    await guest("hotkey", keys=["ctrl", "a"])
    await guest.act("type_text", text="fig (1).txt\n")
    assert [label for tag, label in await guest.rows() if tag == "icon"] == ["Archive", "fig (1).txt", "kiwi.txt"]
    await guest.act("click", **await guest.centre("icon", "Archive"), n=2)
    assert await guest.titles() == ["Archive"]
    assert ("icon", "2024") in await guest.rows()


async def test_a_menu_of_the_file_manager_is_seen_while_it_is_open(guest: Guest):
    await guest.open("pcmanfm", "Documents", title="Documents")
    items = ("menu-item", "Select All"), ("menu-item", "New Window")
    for menu, shown in (("Edit", (True, False)), ("File", (False, True))):
        await guest.act("click", **await guest.centre("menu", menu))
        rows = await guest.rows()
        assert tuple(item in rows for item in items) == shown
        await guest.act("hotkey", keys=["Escape"])
    assert not set(items) & set(await guest.rows())


async def test_two_clicks_are_no_double_click(guest: Guest):
    await guest("run", argv=["mkdir", "-p", "Documents/Archive"])
    await guest.open("pcmanfm", "Documents", title="Documents")
    place = await guest.centre("icon", "Archive")
    await guest("click", **place)
    await guest.act("click", **place)
    assert await guest.titles() == ["Documents"]


async def test_keys_act_on_the_file_chosen_last(guest: Guest):
    for name in ("kiwi.txt", "plum.txt"):
        await guest("write_file", path=f"Documents/{name}", data=b"")
    await guest.open("pcmanfm", "Documents", title="Documents")
    first, second = await guest.centre("icon", "kiwi.txt"), await guest.centre("icon", "plum.txt")
    await guest("click", **first)
    await guest("click", **second)
    await guest.act("hotkey", keys=["F2"])
    assert ("text", "plum.txt") in await guest.rows()


async def test_what_a_dialog_covers_is_not_said(guest: Guest):
    await guest("write_file", path="Documents/plum.txt", data=b"hello")
    await guest.open("mousepad", "Documents/plum.txt", title="plum.txt")
    await guest.act("hotkey", keys=["ctrl", "shift", "s"])
    frame = await guest("observe")
    dialog = next(n for n, window in enumerate(frame["windows"]) if window["title"] == "Save As")
    covered = [element for element in frame["elements"] if element[0] == "text" and element[2] == "hello"]
    assert covered == []
    assert any(element[8] == dialog and element[:2] == ("push-button", "Cancel") for element in frame["elements"])


async def test_windows_are_raised_placed_and_closed(guest: Guest):
    await guest.open("xterm", "-T", "one", title="one", accessible=False)
    await guest.open("xterm", "-T", "two", title="two", accessible=False)
    one, two = await guest("windows")
    assert (one.active, two.active) == (False, True)
    assert one.w > 1200
    await guest.act("activate", number=one.id, maximize=True)
    assert [window.active for window in await guest("windows")] == [True, False]
    await guest.act("close", number=two.id)
    assert await guest.titles() == ["one"]
    with pytest.raises(GuestRefused, match="there is no window"):
        await guest("activate", number=two.id)


async def test_screenshots(guest: Guest):
    image = Image.open(io.BytesIO(await guest("screenshot", format="jpeg", quality=50)))
    assert (image.format, image.size) == ("JPEG", (1280, 720))
    before = await guest("screenshot", format="png")
    assert Image.open(io.BytesIO(before)).size == (1280, 720)
    await guest.open("xterm", title="xterm", accessible=False)
    assert await guest("screenshot", format="png") != before


async def test_quiet_is_not_called_early_nor_waited_for_in_vain(guest: Guest):
    began = time.monotonic()
    assert await guest("settle", timeout_ms=60_000)
    assert time.monotonic() - began < 55
    await guest("launch", argv=["sh", "-c", "while :; do :; done"])
    assert not await guest("settle", timeout_ms=300)


BAD = {
    "an unknown key": ("hotkey", {"keys": ["ctrl", "nokey"]}, "bad_key"),
    "too many keys": ("hotkey", {"keys": ["a"] * 7}, "bad_request"),
    "a control character": ("type_text", {"text": "a\x1b[2J"}, "bad_key"),
    "off the screen": ("click", {"x": 1280, "y": 5}, "outside"),
    "a fourth button": ("click", {"x": 1, "y": 1, "button": 4}, "bad_request"),
    "an unknown argument": ("click", {"x": 1, "y": 1, "z": 1}, "failed"),
    "an argument of another type": ("move", {"x": "1", "y": 1}, "failed"),
    "an absolute path": ("read_file", {"path": "/etc/passwd"}, "bad_path"),
    "a path that climbs": ("write_file", {"path": "../x", "data": b""}, "bad_path"),
    "a link": ("read_file", {"path": "link"}, "bad_path"),
    "below a link": ("write_file", {"path": "folder/x", "data": b""}, "bad_path"),
    "no program": ("launch", {"argv": ["/none"]}, "failed"),
    "an unknown picture": ("screenshot", {"format": "tiff"}, "bad_request"),
    "a window that never comes": ("wait_window", {"title": "none", "timeout_ms": 50}, "no_window"),
}


async def test_bad_requests_are_refused_and_the_agent_goes_on(guest: Guest):
    await guest("launch", argv=["ln", "-s", "/etc/passwd", "link"])
    await guest("launch", argv=["ln", "-s", "/tmp", "folder"])
    async with asyncio.timeout(60):
        while await guest("running"):  # noqa: ASYNC110 - a guest's
            await asyncio.sleep(0.02)
    for name, (method, args, kind) in BAD.items():
        with pytest.raises(GuestRefused) as refused:
            await guest(method, **args)
        assert refused.value.kind == kind, (name, refused.value)
    assert await guest("read_file", path=".bashrc") == b"PS1='$ '\nHISTFILE=\nset +H  # \"!\" stands for itself\n"
    assert await guest("ping") == "pong"
