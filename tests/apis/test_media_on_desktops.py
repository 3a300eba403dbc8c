"""Oracles of Chromium's and VLC's tasks on real desktops; what is bookmarked last counts though it is written late."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
import pytest_asyncio

from actors.cluster.apicheck.command import missing
from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool import Pool
from actors.desktop.seat_config import SeatConfig
from apis.forms import Turn
from apis.observation import Observation
from policy.base.build import MODEL
from policy.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(
    bool(missing("vlc") or missing("google_chrome")), reason="VLC or Chromium is not installed"
)
MOST_CHARS = 2800  # of a compact prompt


@pytest.fixture
def state_dir() -> Iterator[str]:
    with TemporaryDirectory(prefix="crl-t", dir="/run" if os.access("/run", os.W_OK) else None) as folder:
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
        ("web_tab", "gui", "paper"),
        ("web_bookmark", "api", "compact"),
        ("web_note", "gui", "compact"),
        ("web_all", "gui", "compact"),
        ("vlc_playlist", "gui", "compact"),
        ("vlc_playlist", "mixed", "paper"),
        ("vlc_setting", "gui", "compact"),
        ("vlc_setting", "api", "compact"),
        ("vlc_save", "gui", "compact"),
    ],
)
async def test_oracles_solve_their_tasks_by_every_route(
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


async def test_the_page_that_shows_is_not_the_one_that_was_asked_for(pool: Pool) -> None:
    said = Said("BrowserTools.bookmark_page()", "Agent.exit(success=True)")
    played = await Player(pool).play("web_tab/train/1", lambda _: said)
    assert not played.success
    assert "a bookmark" in played.detail, played.detail


async def test_it_finds_back_after_stray_steps(pool: Pool) -> None:
    stray = demonstrated(Tokenizer.load(MODEL), route="gui", noise=0.3)
    played = await Player(pool).play("vlc_playlist/train/3", stray, seed=6)
    assert played.success, (played.detail, [step.response for step in played.steps])
