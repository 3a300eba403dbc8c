"""The supervisor with a real ledger, and a seat, a learner and a sampler that pretend."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from actors.entropulse import actor as entropulse
from actors.entropulse.actor import EntropulseActor
from actors.entropulse.config import EvaluationConfig
from actors.replay.actor import ReplayActor
from actors.replay.messages import (
    Figures,
    LearnerResumed,
    Phase,
    WaitFigures,
)
from actors.sampler.messages import Pin
from runtime.actor import handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Request, Version
from runtime.system import ActorSpec, ActorSystem
from tests.actors.entropulse.peers import SETTINGS, Crash, GetPins, Learner, Mortal, Sampler, Seat
from tests.actors.replay.ledger_tools import settings as ledger_settings


class Die(Request[Done]):
    """Lose what was made since the checkpoint, and go on from there."""


class Relapsing(Learner):
    """Falls back to its checkpoint when it is told to; the answer comes once the ledger knows."""

    wait_s = 0.05
    relapse: asyncio.Event | None = None

    async def before_taking(self) -> None:
        if self.relapse is not None and not self.relapse.is_set():
            again = Version(lineage=self.version.lineage + 1, step=self.saved.step)
            await self.ctx.ref("replay").ask(LearnerResumed(version=again, parent=self.saved), timeout_s=15)
            await self.export(again)
            self.relapse.set()

    @handles(Die, concurrent=True)
    async def die(self, _msg: Die) -> Done:
        self.relapse = asyncio.Event()
        await asyncio.wait_for(self.relapse.wait(), 15)
        return Done()


class Slow(Sampler):
    """While it loads the first weights that RL made, these are lost."""

    async def on_start(self) -> None:
        await super().on_start()
        self.lost = ""

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        if not self.lost and msg.version.step > SETTINGS.entropulse.bc_steps:
            self.lost = str(msg.version)
            await self.ctx.ref("learner").ask(Die(), timeout_s=20)
        return await super().pin(msg)


@pytest.mark.slow
async def test_a_round_whose_weights_are_lost_while_they_are_pinned_opens_on_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    phases = msgspec.structs.replace(SETTINGS.entropulse, total_rl_steps=6, rl_steps_per_phase=0, pulses=0)
    beside = msgspec.structs.replace(SETTINGS, entropulse=phases, evaluation=EvaluationConfig(interval=1))
    async with ActorSystem(tmp_path) as system:
        ledger = ledger_settings(demos=2, incarnation="test", rl_steps_in_all=6)
        await system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=ledger))
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Slow),
            ActorSpec(name="learner", factory=Relapsing),
            ActorSpec(name="entropulse", factory=EntropulseActor, config=beside),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system, crashes_in=())
    rounds = {found.round: found.version for found in figures.evals}
    assert all(version.lineage == 1 for name, version in rounds.items() if name != "after_bc"), rounds
    assert any("a resume has abandoned" in line["cause"] for line in read_logs(tmp_path, event="supervisor_waits"))


async def test_a_whole_run_with_a_supervisor_that_keeps_crashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    config = ledger_settings(demos=2, incarnation="test", rl_steps_in_all=SETTINGS.entropulse.rl_steps_in_all)
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=config))
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Sampler),
            ActorSpec(name="learner", factory=Learner),
            ActorSpec(name="entropulse", factory=Mortal, config=SETTINGS),
            *(ActorSpec(name=f"desktop/{n}", factory=Seat) for n in range(2)),
        )
        figures = await until_done(system)
        record = await system.ref("sampler/0").ask(GetPins(), timeout_s=30)
    assert figures.steps == {"bc": 2, "rl": 2, "pulse": 1}
    rounds = {found.round: str(found.version) for found in figures.evals}
    assert rounds == {"after_bc": "0.2", "final": "0.5"}
    assert all(found.closed and found.successes == 2 for found in figures.evals)
    assert len({found.task_set for found in figures.evals}) == 1
    pinned, unpinned = msgspec.json.decode(record.location)
    assert set(pinned) == {"0.2", "0.5"}
    assert "0.2" in unpinned, "the round is over"
    kept = sorted((tmp_path / "kept").glob("*/model.safetensors"))
    assert [path.read_text() for path in kept] == ["0.2", "0.5"], "after cloning and at the end"
    changes = list(read_logs(tmp_path, event="phase_changed"))
    assert [line["phase"] for line in changes] == ["bc", "rl", "pulse", "rl", "done"]
    assert [line["cause"] for line in changes] == [
        "demos_complete", "bc_complete", "counted", "pulse_complete", "counted",
    ]  # fmt: skip


async def until_done(system: ActorSystem, *, crashes_in: tuple[Phase, ...] = (Phase.BC, Phase.RL)) -> Figures:
    """Crash the supervisor once in each of those phases on the way, or later where one went by between two looks."""
    seen, crashes, order = -1, list(crashes_in), list(Phase)
    async with asyncio.timeout(110):
        while True:
            figures = await system.ref("replay").ask(WaitFigures(since=seen, wait_s=5), timeout_s=15)
            seen = figures.revision
            if crashes and order.index(figures.phase.phase) >= order.index(crashes[0]):
                crashes.pop(0)
                with pytest.raises(Exception, match="crash"):
                    await system.ref("entropulse").ask(Crash(), timeout_s=30)
            if figures.phase.phase is Phase.DONE:
                assert not crashes
                return figures
