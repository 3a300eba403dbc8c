"""A terminal and several windows in a desktop: what a terminal shows is told, whatever is written to it."""

from __future__ import annotations

import time
from typing import Any

from apis.actions.gui import SwitchWindow
from apis.plans.action import plan
from apis.tasks.osworld import (
    ActivateWindow,
    CommandParameters,
    Launch,
    Open,
    OpenParameters,
    WindowParameters,
)

Guest = Any  # a desktop in a test's words: see conftest.py
TERMINAL = Launch(parameters=CommandParameters(command=["xterm"]))


async def shown(guest: Guest) -> str:
    (terminal,) = [e for e in (await guest.look()).elements if e.tag == "terminal"]
    assert "foc" in terminal.states
    return terminal.text


async def test_what_a_terminal_shows_is_told(guest: Guest):
    await guest.prepare(TERMINAL)
    assert await shown(guest) == "$"
    await guest.act("type_text", text="echo $((6*7)) pears; tty | tr -d 0-9\n")
    assert await shown(guest) == "$ echo $((6*7)) pears; tty | tr -d 0-9\n42 pears\n/dev/pts/\n$"
    nasty = r"\033]0;x\007\033[31mred\033[0m\033[5Dab\a\n"
    await guest.act("type_text", text=f"clear; printf '{nasty}'; seq 60 | tail -3\n")
    assert await shown(guest) == "abd\n58\n59\n60\n$"
    flood = r"head -c 400000 /dev/zero | tr '\0' y; clear; stat -c %s $XDG_RUNTIME_DIR/terminal-*"
    await guest.act("type_text", text=f"{flood}\n")
    assert await shown(guest) == "32780\n$"  # what is kept of it does not grow
    await guest.act("type_text", text="exit\n")
    assert await guest.titles() == []


async def test_windows_are_opened_in_order_and_switched(guest: Guest):
    await guest("write_file", path="Documents/note.txt", data=b"read me")
    opened = Open(parameters=OpenParameters(path="/home/user/Documents/note.txt"))
    await guest.prepare(opened, TERMINAL)
    look = await guest.look()
    assert [(w.app, w.active) for w in look.windows] == [("text_editor", False), ("terminal", True)]
    assert [e.tag for e in look.elements] == ["terminal"]  # the editor lies wholly under it
    await guest.act("type_text", text="echo ab")
    for call in plan(SwitchWindow(window_id="w1"), look).calls:
        await guest(call.method, **call.args)
    look = await guest.look()
    assert look.app == "text_editor"
    assert not [e for e in look.elements if e.tag == "terminal"]
    await guest.prepare(ActivateWindow(parameters=WindowParameters(window_name="xterm")))
    await guest.act("type_text", text="c\n")
    assert await shown(guest) == "$ echo abc\nabc\n$"


async def test_a_screen_that_never_rests_is_not_waited_for(guest: Guest):
    await guest.prepare(TERMINAL)
    await guest("type_text", text="while :; do echo $RANDOM; done\n")
    began = time.monotonic()
    assert not await guest("settle", timeout_ms=400)
    assert time.monotonic() - began < 10
    assert "\n" in await shown(guest)
    await guest.act("hotkey", keys=["ctrl", "c"])
    assert (await shown(guest)).endswith("$")
