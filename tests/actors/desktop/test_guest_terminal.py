"""A terminal and several windows in a desktop: what a terminal shows is told, whatever is written to it."""

from __future__ import annotations

import random
import shutil
import time
from typing import Any

import pytest

from apis.actions.gui import SwitchWindow
from apis.plans.action import plan
from apis.prompts.compact import render_compact
from apis.tasks.osworld import ActivateWindow, Launch, Open

Guest = Any  # a desktop in a test's words: see conftest.py
CURSES = """
import curses

def main(screen):
    curses.curs_set(0)
    box = curses.newwin(3, 10, 4, 20)
    box.box()
    box.addstr(1, 2, "日本[x]")
    screen.refresh()
    box.refresh()
    screen.getch()

curses.wrapper(main)
"""
TERMINAL = Launch(["xterm"])


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
    opened = Open("/home/user/Documents/note.txt")
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
    await guest.prepare(ActivateWindow("xterm"))
    await guest.act("type_text", text="c\n")
    assert await shown(guest) == "$ echo abc\nabc\n$"


async def test_a_screen_that_never_rests_is_not_waited_for(guest: Guest):
    await guest.prepare(TERMINAL)
    await guest("type_text", text="while :; do echo $RANDOM; done\n")
    began = time.monotonic()
    assert not await guest("settle", timeout_ms=400)
    assert time.monotonic() - began < 50
    assert "\n" in await shown(guest)
    await guest.act("hotkey", keys=["ctrl", "c"])
    assert (await shown(guest)).endswith("$")


async def test_a_name_is_shown_as_it_is_written_and_can_be_typed_so(guest: Guest):
    names = ["re\u0301sume\u0301.txt", "ハ\u309aン屋の本.txt", "가족 📷.txt"]  # as a Mac writes the first two
    for number, name in enumerate(names):
        await guest("write_file", path=f"Documents/{name}", data=f"this is {number}\n".encode())
    await guest.prepare(TERMINAL)
    await guest.act("type_text", text="cd Documents; clear; ls -1 -N\n")
    assert set((await shown(guest)).split("\n")[:-1]) == set(names)
    for number, name in enumerate(names):
        line = next(line for line in render_compact("Read", [], await guest.look(), None).split("\n") if name in line)
        assert name in line
        await guest.act("type_text", text=f"clear; cat '{name}'\n")
        assert f"\nthis is {number}\n" in "\n" + await shown(guest)
        await guest.act("type_text", text="clear; ls -1 -N\n")


async def test_programs_of_the_whole_screen_are_shown_as_they_look(guest: Guest):
    text = "".join(f"{n} 日本語 e\u0301 x\n" for n in range(1, 60))
    await guest("write_file", path="long.txt", data=text.encode())
    await guest("write_file", path="ask.py", data=CURSES.encode())
    await guest.prepare(TERMINAL)
    await guest.act("type_text", text="python3 ask.py\n")
    lines = (await shown(guest)).split("\n")
    assert [line.strip() for line in lines] == ["┌────────┐", "│ 日本[x]│", "└────────┘"]
    await guest.act("type_text", text="q")
    assert (await shown(guest)).endswith("ask.py\n$")  # the first screen is there again
    for program, end in (("less", "q"), ("vi", ":q\n")):
        if shutil.which(program) is None:
            continue
        await guest.act("type_text", text=f"{program} long.txt\n")
        assert "\n21 日本語 e\u0301 x\n" in await shown(guest)
        await guest.act("type_text", text="G")
        assert "59 日本語 e\u0301 x\n" in await shown(guest) + "\n"
        await guest.act("type_text", text=end)
        assert (await shown(guest)).endswith("\n$")


SIGNS = 420  # twice as many as there are spare keys for
HOLD = "sleep 0.2; kill -STOP $p; sleep 0.5; kill -CONT $p"
HELD = f"p=$(pgrep -x mousepad); {HOLD}; {HOLD}"


def han(number: int, seed: int) -> str:
    return "".join(chr(0x4E00 + at) for at in random.Random(seed).sample(range(20_000), number))


async def saved(guest: Guest, name: str) -> str:
    await guest.act("hotkey", keys=["ctrl", "s"])
    return str(await guest.text(f"Documents/{name}")).rstrip("\n")


async def edited(guest: Guest, name: str) -> None:
    await guest("write_file", path=f"Documents/{name}", data=b"")
    await guest.open("mousepad", f"Documents/{name}", title=name)


@pytest.mark.proof
async def test_more_signs_than_keys_are_right_though_the_application_is_held_up(guest: Guest) -> None:
    await edited(guest, "held.txt")
    text = han(SIGNS, 1)
    await guest("launch", argv=["sh", "-c", HELD])
    assert await guest("type_text", text=text) == "Type Success"
    assert await guest("settle", timeout_ms=15_000)
    assert await saved(guest, "held.txt") == text


@pytest.mark.proof
async def test_an_application_that_reads_no_keys_is_told_of_and_the_next_call_goes_on_when_it_reads(
    guest: Guest,
) -> None:
    await edited(guest, "stopped.txt")
    text = han(SIGNS, 2)
    await guest("launch", argv=["sh", "-c", "p=$(pgrep -x mousepad); kill -STOP $p; sleep 9.5; kill -CONT $p"])
    assert (await guest("type_text", text=text, calls=2)).startswith("Typed only the first ")
    assert await guest("type_on") == "Type Success"
    assert await guest("settle", timeout_ms=15_000)
    assert await saved(guest, "stopped.txt") == text


async def test_a_terminal_gets_the_signs_that_were_typed(guest: Guest) -> None:
    await guest.open("xterm", title="xterm", accessible=False)
    text = "\n".join(han(60, seed) for seed in range(7))
    await guest.act("type_text", text=f"cat > signs\n{text}\n")
    await guest.act("hotkey", keys=["ctrl", "d"])
    assert await guest.text("signs") == text + "\n"


@pytest.mark.proof
async def test_locks_and_another_layout_change_nothing(guest: Guest) -> None:
    await edited(guest, "locked.txt")
    text = "Straße, yacht; Zoo #1 @home ~x^2 [a] {b} é Ж 語"
    await guest.act("hotkey", keys=["capslock"])
    await guest.act("type_text", text=text + "\n")
    for layout in ("de", "ru", "us,gr"):
        await guest("launch", argv=["setxkbmap", layout])
        assert await guest("settle", timeout_ms=15_000)
        await guest.act("type_text", text=text + "\n")
    assert await saved(guest, "locked.txt") == "\n".join([text] * 4)


async def test_typing_without_a_window_in_focus_is_no_success(guest: Guest) -> None:
    told = "Typed nothing: no window has the focus. Click into one, or open an application"
    assert await guest("type_text", text="abc") == told
    await edited(guest, "focused.txt")
    assert await guest("type_text", text="abc") == "Type Success"
    assert await saved(guest, "focused.txt") == "abc"
    await guest.act("hotkey", keys=["alt", "F4"])
    assert await guest("type_text", text="abc") == told
