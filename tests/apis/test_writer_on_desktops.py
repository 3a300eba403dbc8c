"""Writer's oracles solve their tasks on real desktops by each route; a claim without saving does not."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
import pytest_asyncio

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool import Pool
from actors.desktop.seat_config import SeatConfig
from apis.actions import line
from apis.forms import Turn
from apis.observation import Observation
from apis.tasks.families import writer_text
from apis.tools import call
from policy.base.build import MODEL
from policy.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
MOST_CHARS = 2500  # of a compact prompt


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
    ("family", "route", "form"),
    [
        ("writer_text", "gui", "compact"),
        ("writer_look", "gui", "paper"),
        ("writer_look", "api", "compact"),
        ("writer_case", "api", "paper"),
        ("doc_from_note", "mixed", "compact"),
    ],
)
async def test_oracles_solve_their_tasks_by_each_route(
    family: str, route: str, form: Literal["compact", "paper"], pool: Pool
) -> None:
    player = Player(pool, SeatConfig(screenshots="none", form=form))
    answers = demonstrated(Tokenizer.load(MODEL), form=form, route=route)
    played = await player.play(f"{family}/held-out/3", answers, route=route, seed=2)
    assert played.success, (played.detail, [step.response for step in played.steps])
    assert 2 <= len(played.steps) <= 6
    if form == "compact":
        assert max(len(str(step.observation)) for step in played.steps) < MOST_CHARS


class Said:
    """Answers what it was told to, one after the other."""

    def __init__(self, *answers: str) -> None:
        self.answers = iter(answers)

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        return Answer(next(self.answers), [1], [2], [], [], 0.0)


async def test_a_change_that_was_not_saved_fails(pool: Pool) -> None:
    seed = next(n for n in range(99) if writer_text.goal(f"writer_text/train/{n}").kind == "replace")
    old, new = writer_text.goal(f"writer_text/train/{seed}").words
    replaced = call("WriterTools", "find_and_replace", pattern=old, replacement=new)
    said = Said(line(replaced), "Agent.exit(success=True)")
    played = await Player(pool).play(f"writer_text/train/{seed}", lambda _: said)
    assert not played.success
    assert played.detail.endswith("says something else"), played.detail
