"""Actors next to the real ones: a sampler that computes nothing, and a look at a process.

The sampler answers each prompt with one well-formed action after a drawn time, and counts it.
"""

from __future__ import annotations

import asyncio
import random
import time

import msgspec
import psutil

from actors.replay.messages import Serving, VersionSpan
from actors.sampler.messages import Generate, Generated
from policy.tokenizer import Tokenizer
from runtime.actor import Actor, handles
from runtime.messaging.message import Message, Request, Version
from tests.simulated_desktops import observation

REFERENCE_MS = 1.5  # of a reference round on an idle core of the machine that the bounds were set on
SERVING_S = 20.0
BEGIN = Version(lineage=0, step=0)


class PacedConfig(msgspec.Struct, frozen=True):
    """`period_s` is the mean time from a prompt to its answer, which is drawn between half of it and one and a half."""

    model: str
    period_s: float
    turns: int  # of an episode; the last one claims that the task is done
    action: str
    claim: str


class StepsAsked(Message):
    """What the sampler has been asked so far."""

    steps: int
    prompt_tokens: int


class GetStepsAsked(Request[StepsAsked]):
    """Ask for the counts."""


class PacedSampler(Actor):
    """Stands in for engines."""

    config: PacedConfig

    async def on_start(self) -> None:
        """Make both answers."""
        tokenizer = await asyncio.to_thread(Tokenizer.load, self.config.model)
        self._answers = [
            Generated(
                output_ids=ids,
                logprobs=[-0.1] * len(ids),
                finish="stop",
                cached_tokens=0,
                spans=[VersionSpan(version=BEGIN, start=0, end=len(ids))],
            )
            for ids in map(tokenizer.response_ids, (self.config.action, self.config.claim))
        ]
        self._steps = self._tokens = 0
        self.ctx.spawn(self._serve(), "serving")

    async def _serve(self) -> None:
        while True:
            await self.ctx.ref("replay").ask(Serving(sampler=self.ctx.name, version=BEGIN), timeout_s=60)
            await asyncio.sleep(SERVING_S)

    @handles(Generate, concurrent=True, limit=1 << 16)
    async def generate(self, msg: Generate) -> Generated:
        """Answer after a while."""
        await asyncio.sleep(self.config.period_s * random.uniform(0.5, 1.5))
        self._steps += 1
        self._tokens += len(msg.prompt_ids)
        return self._answers[int(msg.rid.rpartition(".")[2]) == self.config.turns - 1]

    @handles(GetStepsAsked, concurrent=True)
    async def drawn(self, msg: GetStepsAsked) -> StepsAsked:
        """The counts."""
        return StepsAsked(steps=self._steps, prompt_tokens=self._tokens)


def reference_round() -> float:
    """Processor milliseconds of a fixed piece of work: how fast a core is now, with what else it has to do."""
    began = time.thread_time()
    for number in range(2):
        msgspec.msgpack.decode(msgspec.msgpack.encode(observation("sheet", number)))
    return 1e3 * (time.thread_time() - began)


class ProcessReading(Message):
    """What the process that was asked has taken in all."""

    uss_bytes: int
    cpu_s: float


class GetProcessReading(Request[ProcessReading]):
    """Ask for it."""


class ProcessLook(Actor):
    """Looks at the process that it lives in."""

    @handles(GetProcessReading, concurrent=True)
    async def look(self, msg: GetProcessReading) -> ProcessReading:
        """What it has taken so far."""
        memory = await asyncio.to_thread(psutil.Process().memory_full_info)
        return ProcessReading(uss_bytes=memory.uss, cpu_s=time.process_time())
