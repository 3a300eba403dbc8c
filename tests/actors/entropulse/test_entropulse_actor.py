"""A supervisor with a real ledger, whose learner falls back while a sampler loads the weights of a round."""

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
    LearnerResumed,
)
from actors.sampler.messages import Pin
from runtime.actor import handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Request, Version
from runtime.system import ActorSpec, ActorSystem
from tests.actors.entropulse.peers import SETTINGS, Learner, Sampler, Seat, until_done
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
        figures = await until_done(system)
    rounds = {found.round: found.version for found in figures.evals}
    assert all(version.lineage == 1 for name, version in rounds.items() if name != "after_bc"), rounds
    assert any("a resume has abandoned" in line["cause"] for line in read_logs(tmp_path, event="supervisor_waits"))
