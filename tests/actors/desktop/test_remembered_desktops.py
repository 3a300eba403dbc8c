"""What real desktops have shown is shown again without one, and agrees with another real desktop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from actors.desktop import memo
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.episode import Episode, PlayedEpisode
from actors.desktop.memo import Memo
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import Recorder
from actors.desktop.remembered import RememberedScene
from actors.desktop.scene import DesktopScene
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from runtime.segments import SegmentStore

SEAT = SeatConfig(screenshots="none")


def reservation(task: str, max_turns: int = 12) -> Reservation:
    return Reservation(
        token=1, lane=Lane.DEMO, task=task, group="", slot=0, seed=1,
        sampling=Sampling(temperature=1.0, max_new_tokens=64), max_turns=max_turns, pin=None,
        phase=PhaseRef(phase=Phase.DEMO, index=0),
    )  # fmt: skip


class Table:
    """A pool, a memo and who plays on them."""

    def __init__(self, pool: DesktopPool, kept: Memo, folder: Path) -> None:
        self.pool, self.kept = pool, kept
        self.recorder = Recorder(SegmentStore(folder, "test"))
        self.tokenizer = Tokenizer.load(MODEL)

    async def play(self, task: str, max_turns: int = 12) -> tuple[PlayedEpisode, int]:
        """The episode of the task's oracle, and how many desktops it took."""
        work = reservation(task, max_turns)
        leased: list[BootedDesktop] = []

        async def lease() -> DesktopScene:
            leased.append(await self.pool.acquire(60.0))
            return DesktopScene(work, LeasedDesktop(leased[-1]), SEAT)

        try:
            episode = Episode(
                work,
                RememberedScene(task, self.kept, lease),
                answerer=of_oracle(work, self.tokenizer, "compact", 0.0),
                recorder=self.recorder,
                config=SEAT,
                enter=lambda stage: None,
            )
            return await episode.play(), len(leased)
        finally:
            for one in leased:
                self.pool.retire(one)


@pytest_asyncio.fixture
async def table(tmp_path: Path, state_dir: str) -> AsyncIterator[Table]:
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0))
    pool = await DesktopPool.open(desktops, tmp_path / "episodes")
    made = Table(pool, Memo(memo.scope(SEAT, desktops), tmp_path / "memo.parquet"), tmp_path / "segments")
    yield made
    await made.recorder.close()
    await pool.close()


@pytest.mark.parametrize("task", ["text_editor/train/100", "note_to_terminal/train/7"])
async def test_an_episode_is_played_again_without_a_desktop_and_goes_on_with_one(table: Table, task: str) -> None:
    first, desktops = await table.play(task)
    assert first.outcome.success
    assert desktops == 1
    assert not any(step.remembered for step in first.steps)
    again, desktops = await table.play(task)
    assert again.outcome == first.outcome
    assert desktops == 0
    assert all(step.remembered for step in again.steps)
    assert [step.line for step in again.steps] == [step.line for step in first.steps]
    last = list(table.kept._lines)[-1]
    del table.kept._lines[last]  # what the last action led to: another desktop is led there, and agrees on the way
    more, desktops = await table.play(task)
    assert more.outcome == first.outcome
    assert desktops == 1
    assert table.kept.contradicted == 0
    assert [step.remembered for step in more.steps].count(False) in (1, 2)
