"""Honest ways to work on a document: after the task's own oracle has done it, all of them pass on real desktops."""

from __future__ import annotations

import re
import shutil

import pytest

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.player import Player
from actors.desktop.pool.pool import DesktopPool
from actors.replay.messages import Reservation
from apis.actions.gui import Click, Exit, Hotkey, OpenApp, Type, Wait, line
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.base import MODEL
from policy.tokenizer import Tokenizer

pytestmark = [
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
    pytest.mark.proof,
    pytest.mark.timeout(240),
]
# And another format of each.
FAMILIES = {
    "writer_text": "odt",
    "calc_cell": "ods",
    "slides_text": "pptx",
    "slides_order": "pptx",
    "slides_copy": "pptx",
}
# A file of this name is replaced, and the file's own format kept.
ASKED = re.compile(r"\n(e\d+) push-button (?:Yes|Keep [^\n]*)\n")


def pressed(*keys: str) -> str:
    return line(Hotkey(keys=keys))


def typed(text: str) -> str:
    return line(Type(text=text, enter=True))


WAIT, SAVE = line(Wait()), pressed("ctrl", "s")
TERMINAL = [line(OpenApp(app_name="terminal")), WAIT]


def saved_as(name: str) -> list[str]:
    """By the dialog; what it asks is answered by `Detour`."""
    return [pressed("ctrl", "shift", "s"), WAIT, pressed("ctrl", "a"), typed(name), WAIT, WAIT]


def ways(family: str) -> dict[str, list[str]]:
    """What is done after the document was saved, before the claim; "{stem}" is its name without its ending."""
    return {
        "undone and redone": [pressed("ctrl", "z"), pressed("ctrl", "y"), SAVE, WAIT],
        "window closed": [pressed("ctrl", "q"), WAIT],
        "a second window": [pressed("ctrl", "n"), WAIT],
        "saved as and renamed": [
            *saved_as("{stem}2.{ending}"),
            *TERMINAL,
            typed("mv ~/Documents/{stem}2.{ending} ~/Documents/{stem}.{ending}"),
            WAIT,
        ],
        "by another format": [
            *saved_as(f"{{stem}}.{FAMILIES[family]}"),
            *saved_as("{stem}.{ending}"),
            *TERMINAL,
            typed(f"rm ~/Documents/{{stem}}.{FAMILIES[family]}"),
            WAIT,
        ],
    }


class Detour:
    """The oracle's answers, and before its claim those of the way."""

    def __init__(self, work: Reservation, way: list[str], seen: list[str]) -> None:
        self._oracle = of_oracle(work, Tokenizer.load(MODEL), "compact", 0.0, "gui")
        self._way, self._seen, self._began = iter([*way, line(Exit(success=True))]), seen, False

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        self._seen.append(prompt.user)
        if not self._began:
            said = await self._oracle.answer(step, prompt, observation, history, last)
            self._began = "Agent.exit" in said.text
        if not self._began:
            return said
        asked = ASKED.search(prompt.user)
        return Answer(line(Click(coordinates=asked[1])) if asked else next(self._way), [1], [2], [], [], 0.0)


@pytest.mark.parametrize("way", list(ways("writer_text")))
@pytest.mark.parametrize("family", FAMILIES)
async def test_an_honest_way_passes(family: str, way: str, pool: DesktopPool) -> None:
    task = f"{family}/train/3"
    stem, _, ending = tasks.goal(task).target.rpartition(".")
    steps = [one.replace("{stem}", stem).replace("{ending}", ending) for one in ways(family)[way]]
    seen: list[str] = []
    player = Player(pool, SeatConfig(screenshots="none"))
    played = await player.play(task, lambda work: Detour(work, steps, seen), max_turns=40)
    assert played.success, (played.detail, *seen[-2:])
