"""Peers that pretend, around a real supervisor: a seat, a learner and a sampler; how a run is set, and its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.entropulse.actor import EntropulseActor
from actors.entropulse.config import EntropulseConfig, EntropulseSettings, EvaluationConfig
from actors.learner.messages import GetLearnerState, LearnerState, WriteWeights
from actors.replay.messages import (
    Batch,
    Checkpointed,
    Commit,
    Figures,
    GetFigures,
    Lane,
    Outcome,
    Phase,
    Reservation,
    Reserve,
    Serving,
    Take,
    Trained,
    WaitFigures,
)
from actors.sampler.messages import Pin, Unpin, Weights
from actors.settings import DemosConfig, SamplingConfig
from policy.errors import NoModel
from runtime.actor import Actor, handles
from runtime.messaging.message import Done, Request, Version
from runtime.system import ActorSystem
from tests.actors.replay.ledger_tools import step

SETTINGS = EntropulseSettings(
    entropulse=EntropulseConfig(bc_steps=2, total_rl_steps=2, rl_steps_per_phase=1, pulses=1, pulse_steps=1),
    evaluation=EvaluationConfig(),
    eval_tasks=["e0", "e1"],
    task_set="e",
    sampling=SamplingConfig(max_new_tokens=16),
    demos=DemosConfig(count=2),
    samplers=["sampler/0"],
)


class Crash(Request[Done]):
    """End the supervisor as a defect would."""


class Mortal(EntropulseActor):
    """A supervisor that can be made to crash."""

    @handles(Crash)
    async def crash(self, _msg: Crash) -> Done:
        raise RuntimeError("crash")


class Seat(Actor):
    """Every second training episode succeeds, everything else always."""

    async def on_start(self) -> None:
        self.ctx.spawn(self.live(), "live")

    async def live(self) -> None:
        replay, number = self.ctx.ref("replay"), 0
        while True:
            number += 1
            wish = Reserve(seat=self.ctx.name, request_id=f"{self.ctx.name}.{number}", wait_s=5.0)
            work = await replay.ask(wish, timeout_s=15)
            if not isinstance(work, Reservation):
                if work.final:
                    return
                continue
            figures = await replay.ask(GetFigures(), timeout_s=15)
            version = work.pin or figures.served
            success = work.lane is not Lane.TRAIN or work.slot == 0
            played = step(
                None if work.lane is Lane.DEMO else str(version), surprisal=0.5**version.step if version else 0
            )
            outcome = Outcome(success=success, reason="verified")
            commit = Commit(token=work.token, seat="s", outcome=outcome, steps=[played], wall_s=1.0, busy_s=1.0)
            await replay.ask(commit, timeout_s=15)


class Learner(Actor):
    """Makes versions out of batches, exports each, tells the ledger that the sampler serves it."""

    wait_s = 5.0  # for a batch
    saved = Version(lineage=0, step=0)

    async def on_start(self) -> None:
        await self.export(Version(lineage=0, step=0))
        self.ctx.spawn(self.live(), "live")

    async def export(self, version: Version) -> None:
        location = self.ctx.run_dir / "weights" / str(version)
        location.mkdir(parents=True)
        (location / "model.safetensors").write_text(str(version))
        self.version, self.location = version, location
        await self.ctx.ref("replay").ask(Serving(sampler="sampler/0", version=self.version), timeout_s=15)

    async def live(self) -> None:
        replay, number = self.ctx.ref("replay"), 0
        while True:
            await self.before_taking()
            number += 1
            wish = Take(learner="learner", request_id=str(number), trained=self.version, wait_s=self.wait_s)
            taken = await replay.ask(wish, timeout_s=15)
            if isinstance(taken, Batch):
                step = await self.learn(taken)
                await replay.ask(step, timeout_s=15)
                await self.export(step.version)
            elif taken.checkpoint:
                self.saved = self.version
                await replay.ask(Checkpointed(version=self.version, location="c", digest="d"), timeout_s=15)
            elif taken.final:
                return

    async def before_taking(self) -> None:
        """What else it does, between two batches."""

    async def learn(self, batch: Batch) -> Trained:
        made = Version(lineage=self.version.lineage, step=self.version.step + 1)
        return Trained(lease=batch.lease, version=made, figures={})

    @handles(GetLearnerState, concurrent=True)
    async def state(self, _msg: GetLearnerState) -> LearnerState:
        return LearnerState(version=self.version, location=str(self.location))

    @handles(WriteWeights, concurrent=True)
    async def write(self, msg: WriteWeights) -> Weights:
        if msg.version != self.version:
            raise NoModel(f"{msg.version} has passed")
        return Weights(version=self.version, digest="d", location=str(self.location))


class Sampler(Actor):
    """Checks that what is pinned is there."""

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        assert (Path(msg.location) / "model.safetensors").read_text() == str(msg.version)
        return Done()

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        return Done()


async def until_done(system: ActorSystem, *, crashes_in: tuple[Phase, ...] = ()) -> Figures:
    """The run's last figures. The supervisor crashes in each of those phases, or later where one went by unseen."""
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
