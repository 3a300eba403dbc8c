"""Actors next to the real ones: a sampler that computes nothing, and a look at a process.

The sampler answers each prompt with one well-formed action after a drawn time, and counts it. The look costs
its process a wake-up each 50 ms.
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
from tests.bench.report import median, percentile
from tests.simulated_desktops import observation

REFERENCE_MS = 1.5  # of a reference round on an idle core of the machine that the bounds were set on
EVERY_S = 0.05
REFERENCE_EVERY_S = 0.5
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
    """A process since the last look: how late its loop's sleeps of 50 ms came back, and what it has taken in all.

    `own` is the part of a lateness in which the loop itself may have run: at most its processor time since the sleep
    began. What is more, other programs had.
    """

    late_p50_ms: float | None
    late_p99_ms: float | None
    own_p99_ms: float | None
    reference_ms: float | None  # the median of its reference rounds
    uss_bytes: int
    cpu_s: float


class GetProcessReading(Request[ProcessReading]):
    """Ask for it, and begin again."""


class ProcessLook(Actor):
    """Looks at the process that it lives in."""

    async def on_start(self) -> None:
        """Begin to measure."""
        self._late: list[float] = []  # twenty a second, until the next look
        self._own: list[float] = []
        self._rounds: list[float] = []
        self._process = psutil.Process()
        self.ctx.spawn(self._measure(), "lateness")

    async def _measure(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began, spent = now(), time.thread_time()
            await asyncio.sleep(EVERY_S)
            late_s = now() - began - EVERY_S
            self._late.append(1e3 * late_s)
            self._own.append(1e3 * min(late_s, time.thread_time() - spent))

    @handles(GetProcessReading, concurrent=True)
    async def look(self, msg: GetProcessReading) -> ProcessReading:
        """What was measured since the last look."""
        late, own = self._late, self._own
        rounds = self._rounds
        self._late, self._own, self._rounds = [], [], []
        spent = self._process.cpu_times()
        return ProcessReading(
            late_p50_ms=percentile(late, 0.5),
            late_p99_ms=percentile(late, 0.99),
            own_p99_ms=percentile(own, 0.99),
            reference_ms=median(rounds),
            uss_bytes=(await asyncio.to_thread(self._process.memory_full_info)).uss,
            cpu_s=spent.user + spent.system,
        )


class ReferenceLook(ProcessLook):
    """Looks at a process that does nothing but a reference round now and then."""

    async def on_start(self) -> None:
        """Begin to measure."""
        await super().on_start()
        self.ctx.spawn(self._work(), "reference")

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(REFERENCE_EVERY_S)
            self._rounds.append(await asyncio.to_thread(reference_round))
