"""Action spaces on real desktops: oracles of each solve their tasks, and what lies outside of one does nothing."""

from __future__ import annotations

import shutil

import pytest

from actors.desktop.config import SeatConfig
from actors.desktop.player import Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from apis.actions.spaces import ActionSpace
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from tests.apis.plays import told
from tests.proofs import proofs

pytestmark = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")


@pytest.mark.parametrize(
    ("family", "space", "route"),
    proofs(("sheet_from_note", "api", ""), ("calc_cell", "gui", ""), ("calc_sheet", "both", "mixed")),
)
async def test_an_oracle_solves_its_task_within_the_space(
    family: str, space: ActionSpace, route: str, pool: DesktopPool
) -> None:
    player = Player(pool, SeatConfig(screenshots="none", action_space=space))
    answers = demonstrated(Tokenizer.load(MODEL), route=route, space=space)
    played = await player.play(f"{family}/held-out/4", answers, route=route, seed=3, max_turns=8)
    assert played.success, (played.detail, [step.response for step in played.steps])
    assert [step.refusal for step in played.steps] == [None] * len(played.steps)
    named = [line for step in played.steps for line in step.observation.splitlines() if line.startswith("actions: ")]
    assert named == ([] if space == "both" else [f"actions: {space}"] * len(played.steps))


async def test_what_lies_outside_is_refused_and_not_done(pool: DesktopPool) -> None:
    said = ("Agent.type(text='spoilt', enter=True)", "Agent.hotkey(keys=['ctrl', 's'])", "Agent.exit(success=True)")
    played = await told(pool, "calc_cell/train/1", *said, actions="api")
    assert not played.success
    first, second, last = played.steps
    assert (first.action, second.action) == (None, None)
    assert "Agent.type is not allowed; Agent has open_app, switch_window" in str(first.refusal)
    assert not any("spoilt" in text for text in last.observation.splitlines() if " table-cell " in text)
    assert [text for text in last.observation.splitlines() if text.startswith("did: ")] == ["did: refused"] * 2
