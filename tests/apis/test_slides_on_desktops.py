"""Impress's oracles solve their tasks on real desktops by either route; a box removed in place of its text does not."""

from __future__ import annotations

import shutil

import pytest

from actors.desktop.answers import Answer, Prompt
from actors.desktop.player import Player
from actors.desktop.pool.pool import DesktopPool
from apis.observation import Observation
from apis.prompts.names import element_names
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.families.presentations import PRESENTATION
from tests.apis.plays import oracle_solves
from tests.proofs import proofs

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
MOST_CHARS = 1800  # of a compact prompt


def numbered(family: str, kind: str) -> str:
    """The first held-out instance of a kind."""
    ids = (f"{family}/held-out/{number}" for number in range(200))
    return next(task_id for task_id in ids if tasks.goal(task_id).kind == kind)


@pytest.mark.parametrize(
    ("family", "kind", "route"),
    [
        ("slides_order", "end", "gui"),
        *proofs(("slides_copy", "copy", "api"), ("slides_text", "clear", "gui"), ("slides_order", "delete", "mixed")),
    ],
)
async def test_oracles_solve_their_tasks_by_either_route(family: str, kind: str, route: str, pool: DesktopPool) -> None:
    await oracle_solves(pool, numbered(family, kind), route=route, most_steps=7, most_chars=MOST_CHARS)


class Removes:
    """Deletes the box where its text should go, saves, and claims to be done."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        place = next((name for name, e in element_names(observation).items() if e.text == self._text), "e1")
        turns = (
            f"Agent.click(coordinates={place})",
            "Agent.hotkey(keys=['delete'])",
            "Agent.hotkey(keys=['ctrl', 's'])",
            "Agent.exit(success=True)",
        )
        return Answer(turns[step], [1], [2], [], [], 0.0)


@pytest.mark.proof
async def test_a_box_that_is_gone_is_not_empty(pool: DesktopPool) -> None:
    ids = (f"slides_text/train/{number}" for number in range(300))
    goals = ((task_id, PRESENTATION.goal(tasks.goal(task_id))) for task_id in ids)
    task_id, goal = next(
        (task_id, goal)
        for task_id, goal in goals
        if goal.kind == "clear" and goal.finish[0][0] == "" and goal.slide == 1
    )
    played = await Player(pool).play(task_id, lambda _: Removes(goal.slides[0][0]))
    assert not played.success
    assert "it has" in played.detail  # a box less than the document that is wanted
