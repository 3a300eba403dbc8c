"""The sampler: prompts in, tokens with log-probabilities and weight versions out.

Invariant: a request that an engine could not take never reaches an engine. Every other request is answered by weights
whose version was read back, or fails as a SamplerError within `generate_timeout_s`. A repeat gets the first answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import msgspec

from actors.errors import EngineGone, SamplerError, SamplerTimeout
from actors.sampler import events
from actors.sampler.config import SamplerSettings
from actors.sampler.engine import wire
from actors.sampler.latest import Latest
from actors.sampler.messages import Generate, Generated, Pin, Refused, Unpin, Weights
from actors.sampler.supervisor import EngineSupervisor
from policy.errors import EngineBusy, EngineError
from runtime.actor import Actor, handles
from runtime.errors import DeadlineExceeded
from runtime.messaging.message import Done
from runtime.supervision import Backoff
from runtime.waits import waiting

_RETRY = Backoff(first_s=0.05, longest_s=2.0)


class SamplerActor(Actor):
    """One engine behind one mailbox."""

    config: SamplerSettings
    _supervisor: EngineSupervisor

    def __init__(self, config: SamplerSettings) -> None:
        super().__init__(config)
        self._answers: OrderedDict[str, Generated] = OrderedDict()
        self._asked: dict[str, asyncio.Event] = {}

    async def on_start(self) -> None:
        self._supervisor = EngineSupervisor(self.config, self.ctx)
        await self._supervisor.start()

    async def on_stop(self) -> None:
        if hasattr(self, "_supervisor"):
            await self._supervisor.stop()

    def doing(self) -> str:
        if not hasattr(self, "_supervisor"):
            return "starting"
        health = self._supervisor.record.health
        return f"{health.state}, serving {health.served}, {self._supervisor.gate.inside} in flight"

    @handles(Weights)
    async def weights(self, msg: Weights) -> None:
        """Remember newer weights; they are loaded beside generation."""
        self._supervisor.weights.announce(msgspec.convert(msg, Latest, from_attributes=True))

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        """Keep a version resident. Raises SamplerError."""
        await self._supervisor.weights.pin(msg.version, msg.location)
        return Done()

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        """Let a version go."""
        await self._supervisor.weights.unpin(msg.version)
        return Done()

    @handles(Generate, concurrent=True)
    async def generate(self, msg: Generate) -> Generated | Refused:
        """Draw a response. Raises SamplerError when no engine gives a sound one in time."""
        if (reason := self._supervisor.limits.refusal(msg.prompt_ids, msg.sampling)) is not None:
            return Refused(reason=reason)
        try:
            async with waiting(self.ctx.name, "engine", f"response {msg.rid}", self.config.samplers.generate_timeout_s):
                return await self._once(msg)
        except DeadlineExceeded as error:
            raise SamplerTimeout(str(error)) from error

    async def _once(self, msg: Generate) -> Generated:
        """The answer to the first request of that id; a repeat waits for it."""
        while (first := self._asked.get(msg.rid)) is not None:
            await first.wait()
        if (known := self._answers.get(msg.rid)) is not None:
            return known
        answered = self._asked[msg.rid] = asyncio.Event()
        try:
            generated = await self._draw(msg)
        finally:
            del self._asked[msg.rid]
            answered.set()
        self._answers[msg.rid] = generated
        while len(self._answers) > self.config.answers_kept:
            self._answers.popitem(last=False)
        return generated

    async def _draw(self, msg: Generate) -> Generated:
        began, attempt = self.ctx.clock.now(), 0
        while True:
            supervisor = self._supervisor
            if msg.elsewhere and not supervisor.takes(msg.pin) and not supervisor.weights.pins.deferred(msg.pin):
                up = supervisor.takes(None)
                raise (EngineBusy if up else EngineGone)(f"{self.ctx.name} is {self.doing()}")
            await supervisor.ready(msg.pin)
            attempt += 1
            try:
                generated = await self._ask_engine(msg, attempt)
                break
            except EngineGone as error:
                supervisor.suspect(error)
                if msg.elsewhere:
                    raise
                cause = str(error)
            except EngineBusy as error:
                if msg.elsewhere:
                    raise
                cause = str(error)
            except EngineError as error:
                raise SamplerError(f"the engine refused {msg.rid}: {error}") from error
            self.ctx.log.emit(events.GENERATE_RETRIED, rid=msg.rid, attempt=attempt, cause=cause)
            await self.ctx.clock.sleep(_RETRY.delay_s(attempt))
        self.ctx.log.emit(
            events.GENERATE,
            rid=msg.rid,
            t0=began,
            t1=self.ctx.clock.now(),
            prompt_tokens=len(msg.prompt_ids),
            tokens=len(generated.output_ids),
            cached_tokens=generated.cached_tokens,
            versions=[str(span.version) for span in generated.spans],
            finish=generated.finish,
            attempts=attempt,
        )
        return generated

    async def _ask_engine(self, msg: Generate, attempt: int) -> Generated:
        # A broken-off attempt may still be known to the engine for a moment: each has an id of its own.
        rid = msg.rid if attempt == 1 else f"{msg.rid}~{attempt}"
        pin = None if msg.pin is None or self.config.sglang else str(msg.pin)
        supervisor, record, hung_s = self._supervisor, self._supervisor.record, self.config.hung_after_s
        async with supervisor.gate.through():
            doubts, served = record.doubts, str(record.health.served)
            # In place SGLang keeps its prefix cache: what old weights made of a prompt must not be found by new ones.
            cache = served if self.config.sglang else None
            body = wire.generate_body(
                rid, msg.prompt_ids, msg.sampling, self.config.stop_ids, pin=pin, cache=cache, seed=msg.seed
            )
            hung = asyncio.get_running_loop().call_later(hung_s, supervisor.unanswered, msg.rid, hung_s)
            try:
                answer = await record.engine.client.generate(body, self.config.samplers.generate_timeout_s)
            finally:
                hung.cancel()
        versions = [span.version for span in answer.meta_info.weight_versions]
        if answer.meta_info.finish_reason.type != "abort":
            await supervisor.weights.vouch(versions, doubts)
            if self.config.sglang and self.config.in_flight == "in_place" and versions[:1] != [served]:
                raise EngineBusy(f"{msg.rid} met new weights with what {served} made of its prompt")
        generated = wire.read_generated(answer)
        if msg.pin is not None and any(span.version != msg.pin for span in generated.spans):
            if self.config.sglang:  # it went on to other weights meanwhile
                raise EngineBusy(f"{msg.rid} was drawn from {generated.spans}, not from {msg.pin} alone")
            raise SamplerError(f"{msg.rid} was drawn from {generated.spans}, not from {msg.pin} alone")
        return generated
