"""What a sampler talks to, in its tests: a ledger and a learner that remember what they were told."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from actors.learner.messages import JoinGroup, NoGroup, WriteWeights
from actors.replay.messages import Serving
from actors.sampler.messages import Weights
from policy.errors import NoModel
from policy.tensorfiles import digest
from runtime.actor import Actor, handles
from runtime.messaging.message import Done, Version


class Ledger(Actor):
    """Remembers what samplers said they serve."""

    told: asyncio.Queue[Version]

    async def on_start(self) -> None:
        type(self).told = asyncio.Queue()

    @handles(Serving)
    async def serving(self, msg: Serving) -> Done:
        """Remember it."""
        self.told.put_nowait(msg.version)
        return Done()

    @classmethod
    async def hears(cls, version: Version, within_s: float = 60.0) -> None:
        """Return once that is served."""
        async with asyncio.timeout(within_s):
            while await cls.told.get() != version:
                pass


class GroupOwner(Actor):
    """A learner that gathers no group, and writes what it is asked for while it has it."""

    model: Path | None = None
    asked: list[Version] = []

    @handles(JoinGroup)
    async def join(self, msg: JoinGroup) -> NoGroup:
        """There is none."""
        return NoGroup(reason="alone")

    @handles(WriteWeights)
    async def write(self, msg: WriteWeights) -> Weights:
        """A copy of the model."""
        self.asked.append(msg.version)
        if self.model is None:
            raise NoModel("it is another by now")
        location = self.ctx.run_dir / "weights" / str(msg.version)
        shutil.copytree(self.model, location)
        return Weights(version=msg.version, digest=digest(location), location=str(location))
