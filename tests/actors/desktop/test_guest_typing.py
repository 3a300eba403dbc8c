"""Signs that the layout lacks, with locks on, under another layout: typed as they are, or told of."""

from __future__ import annotations

import random
from typing import Any

import pytest

Guest = Any  # a desktop in a test's words: see conftest.py
SIGNS = 420  # twice as many as there are spare keys for
HOLD = "sleep 0.2; kill -STOP $p; sleep 0.5; kill -CONT $p"
HELD = f"p=$(pgrep -x mousepad); {HOLD}; {HOLD}"

REPORTS = """
from Xlib import X, display
link = display.Display()
with open("reports", "w") as told:
    print("listening", file=told, flush=True)
    while True:
        event = link.next_event()
        if event.type == X.MappingNotify:
            print(event.first_keycode, file=told, flush=True)
"""


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
async def test_programs_hear_of_a_key_only_when_it_gets_another_sign(guest: Guest) -> None:
    await guest("launch", argv=["python3", "-c", REPORTS])
    await edited(guest, "heard.txt")
    assert await guest.text("reports") == "listening\n"
    assert await guest("type_text", text=han(SIGNS, 3)) == "Type Success"
    assert 0 < len((await guest.text("reports")).split()[1:]) < SIGNS / 4  # a report is of many keys


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
