"""What is typed stands there: signs that the layout lacks, with locks on, under another layout, uncorrected."""

from __future__ import annotations

import json
import random
import shutil
from typing import Any

import pytest

from apis.plans.action import CSV_FILTER

Guest = Any  # a desktop in a test's words: see conftest.py
SIGNS = 420  # twice as many as there are spare keys for
HOLD = "sleep 0.2; kill -STOP $p; sleep 0.5; kill -CONT $p"
HELD = f"p=$(pgrep -x mousepad); {HOLD}; {HOLD}"
OFFICE = ("soffice", "--norestore", "--nologo", "--nofirststartwizard")
CORPUS = r"""
say "hello" to it's owner
a -- b and c - d --- e;
- first
* second
1. third
(c) (tm) ... 1/2 of 3/4 !
http://example.com/a?b=c and www.example.com .
the 1st, 2nd and 3rd ;
at 10:30 or 9:05pm
i am at THe end. teh adn
apple pie
app
*bold* _under_ /it/ -strike- .
+---+---+
---
if (x) { y = "z"; }
<b>"a" & 'b'</b>
:smile: -> <- => .
5 x 6 « q » : ; ! ?
cAPS lOCK wORD .
January
Ja
""".strip().split("\n")


def han(number: int, seed: int) -> str:
    return "".join(chr(0x4E00 + at) for at in random.Random(seed).sample(range(20_000), number))


async def saved(guest: Guest, name: str) -> str:
    await guest.act("hotkey", keys=["ctrl", "s"])
    return str(await guest.text(f"Documents/{name}")).rstrip("\n")


async def edited(guest: Guest, name: str) -> None:
    await guest("write_file", path=f"Documents/{name}", data=b"")
    await guest.open("mousepad", f"Documents/{name}", title=name)


async def test_more_signs_than_keys_are_right_though_the_application_is_held_up(guest: Guest) -> None:
    await edited(guest, "held.txt")
    text = han(SIGNS, 1)
    await guest("launch", argv=["sh", "-c", HELD])
    assert await guest("type_text", text=text) == "Type Success"
    assert await guest("settle", timeout_ms=15_000)
    assert await saved(guest, "held.txt") == text


async def test_an_application_that_reads_no_keys_is_told_of(guest: Guest) -> None:
    await edited(guest, "stopped.txt")
    await guest("launch", argv=["sh", "-c", "kill -STOP $(pgrep -x mousepad)"])
    assert (await guest("type_text", text=han(SIGNS, 2))).startswith("Typed only the first ")
    await guest("launch", argv=["sh", "-c", "kill -CONT $(pgrep -x mousepad)"])


async def test_a_terminal_gets_the_signs_that_were_typed(guest: Guest) -> None:
    await guest.open("xterm", title="xterm", accessible=False)
    text = "\n".join(han(60, seed) for seed in range(7))
    await guest.act("type_text", text=f"cat > signs\n{text}\n")
    await guest.act("hotkey", keys=["ctrl", "d"])
    assert await guest.text("signs") == text + "\n"


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


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
async def test_an_office_corrects_and_completes_nothing(guest: Guest) -> None:
    text = "\n".join(CORPUS)
    await guest.open(*OFFICE, "--writer", title="Writer")
    await guest.act("type_text", text=text)
    seen = [element[2] for element in await guest.elements() if element[0] == "paragraph"]
    assert seen == CORPUS
    await guest.open(*OFFICE, CSV_FILTER, "--calc", title="Calc")
    await guest.act("type_text", text=text + "\n")
    told = await guest("tool", owner="CalcTools", name="get_column_data", arguments={"column_name": "A"})
    assert json.loads(told[told.index("[") :]) == CORPUS
    await guest.open(*OFFICE, "--impress", title="Impress")
    await guest.act("type_text", text=text)
    assert json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"') in await guest("info")
