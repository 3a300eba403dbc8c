"""Impress's oracles solve their tasks on real desktops by either route; a box removed in place of its text does not."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool import Pool
from actors.desktop.seat_config import SeatConfig
from apis import tasks
from apis.forms import Turn, element_names
from apis.observation import Observation
from apis.tasks.slides import of_deck
from policy.base.build import MODEL
from policy.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
MOST_CHARS = 1800  # of a compact prompt


def numbered(family: str, kind: str) -> str:
    """The first held-out instance of a kind."""
    ids = (f"{family}/held-out/{number}" for number in range(200))
    return next(task_id for task_id in ids if tasks.goal(task_id).kind == kind)


@pytest.fixture
def state_dir() -> Iterator[str]:
    with TemporaryDirectory(prefix="crl", dir="/run") as folder:
        Path(folder).chmod(0o755)  # desktops have users of their own
        yield folder


@pytest_asyncio.fixture
async def pool(tmp_path: Path, state_dir: str) -> AsyncIterator[Pool]:
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(spares=1))
    made = await Pool.open(desktops, tmp_path / "plays")
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("family", "kind", "route"),
    [
        ("slides_text", "clear", "gui"),
        ("slides_order", "end", "gui"),
        ("slides_order", "delete", "mixed"),
        ("slides_copy", "copy", "api"),
    ],
)
async def test_oracles_solve_their_tasks_by_either_route(family: str, kind: str, route: str, pool: Pool) -> None:
    player = Player(pool, SeatConfig(screenshots="none", form="compact"))
    answers = demonstrated(Tokenizer.load(MODEL), form="compact", route=route)
    played = await player.play(numbered(family, kind), answers, route=route, seed=2)
    assert played.success, (played.detail, [step.response for step in played.steps])
    assert 2 <= len(played.steps) <= 7
    assert max(len(str(step.observation)) for step in played.steps) < MOST_CHARS


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


async def test_a_box_that_is_gone_is_not_empty(pool: Pool) -> None:
    ids = (f"slides_text/train/{number}" for number in range(300))
    goals = ((task_id, of_deck(tasks.goal(task_id))) for task_id in ids)
    task_id, goal = next(
        (task_id, goal)
        for task_id, goal in goals
        if goal.kind == "clear" and goal.finish[0][0] == "" and goal.slide == 1
    )
    played = await Player(pool).play(task_id, lambda _: Removes(goal.slides[0][0]))
    assert not played.success
    assert played.detail.endswith("slide 1: it has other boxes"), played.detail
