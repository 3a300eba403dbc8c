"""Single tasks on real desktops without a ledger: faults are retried, and never an outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig
from actors.desktop.memo import Memo
from actors.desktop.player import Player
from actors.desktop.pool.pool import DesktopPool
from actors.errors import DesktopFault
from apis.observation import Observation
from apis.prompts.text import Turn

TASK = "text_editor/train/100"


@pytest_asyncio.fixture
async def pool(tmp_path: Path, state_dir: str) -> AsyncIterator[DesktopPool]:
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0))
    made = await DesktopPool.open(desktops, tmp_path / "plays")
    yield made
    await made.close()


class Flaky:
    """Broken by the infrastructure so many times; then it gives up the task."""

    def __init__(self, faults: int) -> None:
        self.faults = faults

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        if self.faults:
            self.faults -= 1
            raise DesktopFault("sampler_unavailable", "gone", "sampler")
        return Answer("Agent.exit(success=False)", [1], [2], [], [], 0.0)


async def test_a_fault_is_retried_and_counted_and_never_becomes_an_outcome(pool: DesktopPool) -> None:
    flaky = Flaky(1)
    play = await Player(pool).play(TASK, lambda _: flaky)
    assert [fault.cause for fault in play.faults] == ["sampler_unavailable"]
    assert play.outcome is not None
    assert play.outcome.reason == "agent_gave_up"
    flaky = Flaky(9)
    broken = await Player(pool, retries=1).play(TASK, lambda _: flaky)
    assert (broken.outcome, len(broken.faults), broken.success) == (None, 2, False)


async def test_what_a_memo_knows_is_played_without_a_desktop(pool: DesktopPool, tmp_path: Path) -> None:
    memo = Memo("of/this/test", tmp_path / "memo.parquet")
    first, again = [await Player(pool, memo=memo).play(TASK, lambda _: Flaky(0)) for _ in range(2)]
    await memo.close()
    assert first.cpu_s > 0.0
    assert (again.boot_cpu_s, again.cpu_s) == (0.0, 0.0)
    assert again.outcome == first.outcome
    assert [step.observation for step in again.steps] == [step.observation for step in first.steps]
