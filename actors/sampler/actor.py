"""The sampler: prompts in, tokens with log-probabilities and weight versions out; and what keeps its engine up.

Invariant: a request that an engine could not take never reaches an engine. Every other request is answered by weights
whose version was read back, or fails as a SamplerError within `generate_timeout_s`. A repeat gets the first answer.

A silent engine is given up only when it left a request of one token unanswered, and has loaded nothing and answered no
other request meanwhile. A serving report may name an older version than the served one, and never a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict

from actors.errors import Deferred, EngineGone, SamplerError, SamplerTimeout
from actors.replay.messages import SERVING_AGAIN_S, Serving
from actors.sampler import client, messages
from actors.sampler.client import Limits
from actors.sampler.config import SamplerSettings
from actors.sampler.engine import engine_of
from actors.sampler.health import EngineRecord, EngineState, Gate
from actors.sampler.messages import FallAsleep, Generate, Generated, Pin, Refused, Unpin, WakeUp, Weights
from actors.sampler.turns import Held, Turns
from actors.sampler.weights import SamplerWeights
from policy.errors import EngineBusy, EngineError
from policy.pictures import collapsed
from runtime.actor import Actor, Context, handles
from runtime.errors import DeadlineExceeded
from runtime.messaging.message import Done, Version
from runtime.messaging.refs import PAUSES, TRANSIENT
from runtime.supervision import Backoff, GiveUp, RestartBudget
from runtime.waits import waiting

PROBE_TIMEOUT_S = 15.0
CALLS_S = 7200.0  # for loads and probes to end, which have limits of their own
SLEEP_S = 600.0  # one try of the learner's to have the card


class EngineSupervisor:
    """Owns the engine of one sampler actor; `weights` keeps what the engine holds."""

    def __init__(self, settings: SamplerSettings, ctx: Context) -> None:
        self._settings, self._ctx = settings, ctx
        self.gate = Gate()
        self._limits: Limits | None = None
        self.turns = Turns(learner=settings.samplers.turns)
        self._report = ServingReport(ctx, settings.replay)
        engine = engine_of(settings, ctx.name, ctx.run_dir, ctx.clock, self._starting)
        self.record = EngineRecord(engine, self._report.serves)
        self.weights = SamplerWeights(settings, ctx, self.record, self.gate, self.suspect)
        self._budget = RestartBudget(f"engine of {ctx.name}", settings.restart)

    def _starting(self, waited_s: float, last_output: str) -> None:
        self._ctx.log.emit(messages.ENGINE_STARTING, waited_s=waited_s, last_output=last_output)

    async def start(self) -> None:
        """Bring the engine up and keep it so. Raises SamplerError or ConfigError when it does not come up."""
        if not self._settings.samplers.turns:
            await self._first_start()
        self._ctx.spawn(self._keep_up(), "keep the engine up")
        self._ctx.spawn(self._take_turns(), "take turns with the learner")
        self._ctx.spawn(self.weights.follow(), "load newer weights")
        if self._settings.replay:
            self._ctx.spawn(self._report.keep_reporting(), "report what is served")

    async def _first_start(self) -> None:
        began = time.monotonic()
        await self._bring_up()
        self._budget.up(self._ctx.clock.now())
        engine, health = self.record.engine, self.record.health
        self._ctx.log.emit(
            messages.SAMPLER_READY, engine=engine.kind, version=str(health.served), pid=engine.pid,
            start_s=round(time.monotonic() - began, 3), restarts=health.losses,
        )  # fmt: skip

    async def stop(self) -> None:
        await self.record.engine.down()

    async def limits(self) -> Limits:
        """What the engine can take, once it has been up."""
        while self._limits is None:
            await self.record.change()
        return self._limits

    async def sleep(self, turn: str) -> None:
        """Return once the card is free for the learner's `turn`. Raises SamplerError where another one has begun."""
        self._turn(self.turns.asked_to_sleep(turn))
        while not self.turns.free:
            if self.turns.turn != turn or not self.turns.learner:
                raise SamplerError(f"the turn {turn} on the card is over")
            await self.record.change()

    def wake(self, turn: str) -> None:
        self._turn(self.turns.asked_to_wake(turn))

    def _turn(self, turns: Turns) -> None:
        if turns != self.turns:
            self.turns = turns
            self.record.wake()

    async def ready(self, pin: Version | None) -> None:
        """Return once the engine may be asked, and holds `pin`. Raises Deferred."""
        while not self.takes(pin):
            if self.weights.wanted.deferred(pin):
                raise Deferred(f"the round on {pin} is deferred while RL draws")
            await self.record.change()

    def takes(self, pin: Version | None) -> bool:
        """Whether the engine may be asked now. A sampler that starts again hears of pins a little later."""
        health = self.record.health
        if health.state is not EngineState.HEALTHY:
            return False
        return pin is None or (health.served == pin if self._settings.sglang else not self.record.strange([str(pin)]))

    def unanswered(self, rid: str, waited_s: float) -> None:
        """A request has had no answer for long: say so, and find out whether the engine still generates."""
        if self.record.alive and not self.record.probing:
            self._ctx.log.emit(messages.ENGINE_SILENT, rid=rid, waited_s=waited_s, pid=self.record.engine.pid)
            self.suspect(EngineGone(f"no answer to {rid} for {waited_s:g} s"))

    def suspect(self, error: Exception) -> None:
        """A call broke: find out whether the engine still generates, and give it up if not."""
        if self.record.alive and not self.record.probing:
            self.record.probing = True
            self._ctx.spawn(self._probe(str(error)), "probe the engine")

    async def _bring_up(self) -> None:
        while self.turns.due is not Held.STARTING:
            await self.record.change()
        self._turn(self.turns.became(Held.STARTING, Held.NONE))
        try:
            latest = await self.weights.starting_with()
        except EngineError as error:
            raise SamplerError(f"there are no weights to start the engine with: {error}") from error
        try:
            await self.record.engine.up(latest)
            self.record.came_up()
            self._limits = await self.record.engine.client.limits(self._settings.model)
            await self.weights.check_started(latest)
        except EngineError as error:
            raise SamplerError(f"the engine came up but can't be used: {error}") from error
        self._turn(self.turns.became(Held.AWAKE, Held.STARTING))

    async def _keep_up(self) -> None:
        engine = self.record.engine
        if self.turns.engine is Held.NONE:
            await self._first_start()
        while True:
            cause = await self.record.lost()
            down = time.monotonic()
            self.record.becomes(self.record.health.lost())
            self.weights.decline()
            self._ctx.log.emit(
                messages.ENGINE_DIED, cause=cause, exit_code=engine.exit_code, last_output=engine.last_output
            )
            attempt = 0
            while not self.record.alive:
                attempt += 1
                await engine.down()
                self._turn(self.turns.lost())
                if attempt > self._settings.restart.max_restarts:  # slow ones never fill a window
                    raise SamplerError(f"the engine did not come back in {attempt - 1} tries: {cause}")
                decision = self._budget.on_failure(self._ctx.clock.now(), cause)
                if isinstance(decision, GiveUp):
                    raise SamplerError(decision.reason)
                delay_s = self._settings.restart.delay_s(self.record.health.streak)
                await self._ctx.clock.sleep(max(decision.delay_s, delay_s))
                try:
                    await self._bring_up()
                except SamplerError as error:
                    cause = str(error)
                    self.record.becomes(self.record.health.lost())
                    self._ctx.log.emit(messages.ENGINE_NOT_BACK, attempt=attempt, cause=cause)
            self._budget.up(self._ctx.clock.now())
            health = self.record.health
            self._ctx.log.emit(
                messages.ENGINE_RESTARTED, version=str(health.served), pid=engine.pid,
                down_s=round(time.monotonic() - down, 3), restarts=health.losses,
            )  # fmt: skip

    async def _take_turns(self) -> None:
        """Put the engine to sleep and wake it, as the learner asks. One that fails at it is given up."""
        while True:
            while not (self.record.alive and self._is_to_sleep):
                await self.record.change()
            life, loader = self.record.health.losses, self.weights.loader
            try:
                async with self.weights.calls.closed(CALLS_S), loader.drain():
                    loader.drained = True
                    await self._one_turn()
            except (EngineGone, EngineError, TimeoutError) as error:
                if self.record.health.losses == life:
                    await self.record.condemn(f"it can't give up its memory or take it back: {error!r}")
                while self.record.health.losses == life:
                    await self.record.change()
            finally:
                loader.drained = False

    @property
    def _is_to_sleep(self) -> bool:
        return self.turns.learner and self.turns.engine is Held.AWAKE

    async def _one_turn(self) -> None:
        """From an engine that is to sleep to one that draws, or is lost."""
        while self._is_to_sleep or self.turns.engine in (Held.PAUSED, Held.ASLEEP):
            before, after, client = self.turns.engine, self.turns.due, self.record.engine.client
            if after is None:
                await self.record.change()
                continue
            if after is Held.ASLEEP:
                await client.release_memory(self._settings.samplers.load_timeout_s)
            elif before is Held.ASLEEP:
                await client.resume_memory(self._settings.samplers.load_timeout_s)
            elif before is Held.AWAKE:
                await client.pause("retract")  # its last batch, which would count as running, is gone then
            else:
                await client.resume()
                await self.weights.catch_up()
            self._turn(self.turns.became(after, before))
            self._ctx.log.emit(messages.ENGINE_TURN, card=self.turns.engine)

    async def _probe(self, cause: str) -> None:
        try:
            why = await self._silence()
            if why:
                await self.record.condemn(f"{cause}; then: {why}")
            elif self.weights.behind:
                await self._ctx.clock.sleep(self._settings.restart.delay_s(self.record.broken_loads))
                self.weights.retry()
        finally:
            self.record.probing = False

    async def _silence(self) -> str:
        """Why the engine is dead, "" where it is not."""
        judged = self.weights.loader.judged
        while True:
            await judged.wait()  # while it loads it may be paused
            before = self.record.answered
            try:
                async with self.weights.calls.through():
                    await self.record.engine.client.first_token(0, PROBE_TIMEOUT_S)
            except EngineBusy:
                return ""  # a full line is a sign of life
            except (EngineError, EngineGone) as error:
                if judged.is_set() and self.record.answered == before:
                    return str(error)
            else:
                return ""


_REPORT_TIMEOUT_S = 10.0


class ServingReport:
    """Holds what the engine serves until the ledger has heard it."""

    def __init__(self, ctx: Context, replay: str) -> None:
        self._ctx, self._replay = ctx, replay
        self._served: Version | None = None
        self._changed = asyncio.Event()

    def serves(self, version: Version | None) -> None:
        if version is not None and version != self._served:
            self._changed.set()
        self._served = version

    async def keep_reporting(self) -> None:
        failures = 0
        while True:
            self._changed.clear()
            if (version := self._served) is not None:
                try:
                    serving = Serving(sampler=self._ctx.name, version=version)
                    await self._ctx.ref(self._replay).ask(serving, timeout_s=_REPORT_TIMEOUT_S)
                except TRANSIENT as error:  # asked again, for the version that is served then
                    self._ctx.log.emit(messages.SERVING_NOT_REPORTED, version=str(version), cause=str(error))
                    failures += 1
                    await self._ctx.clock.sleep(PAUSES.delay_s(failures))
                    continue
            failures = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SERVING_AGAIN_S):
                    await self._changed.wait()


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
        self._supervisor.weights.announce(msg)

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        """Keep a version resident. Raises SamplerError."""
        await self._supervisor.weights.pin(msg.version, msg.location)
        return Done()

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        await self._supervisor.weights.unpin(msg.version)
        return Done()

    @handles(FallAsleep, concurrent=True, slow_after_s=SLEEP_S)
    async def sleep(self, msg: FallAsleep) -> Done:
        """Raises SamplerError where that turn is over."""
        async with waiting(self.ctx.name, "engine", "the card", SLEEP_S):
            await self._supervisor.sleep(msg.turn)
        return Done()

    @handles(WakeUp)
    async def wake(self, msg: WakeUp) -> Done:
        self._supervisor.wake(msg.turn)
        return Done()

    @handles(Generate, concurrent=True)
    async def generate(self, msg: Generate) -> Generated | Refused:
        """Draw a response. Raises SamplerError when no engine gives a sound one in time."""
        limit_s = self.config.samplers.answer_limit_s
        try:
            async with waiting(self.ctx.name, "engine", f"response {msg.rid}", limit_s):
                limits = await self._supervisor.limits()
                if (reason := limits.refusal(msg.prompt_ids, msg.sampling, msg.pictures)) is not None:
                    return Refused(reason=reason)
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
            if msg.elsewhere and not supervisor.takes(msg.pin) and not supervisor.weights.wanted.deferred(msg.pin):
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
            self.ctx.log.emit(messages.GENERATE_RETRIED, rid=msg.rid, attempt=attempt, cause=cause)
            await self.ctx.clock.sleep(_RETRY.delay_s(attempt))
        self.ctx.log.emit(
            messages.GENERATE,
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
            adapter = supervisor.weights.loader.adapter_name(record.health.served)
            ids = msg.prompt_ids
            if msg.pictures and self.config.sglang:
                ids = collapsed(ids, (await supervisor.limits()).places(ids, msg.pictures))
            body = client.generate_body(
                rid, ids, msg.sampling, self.config.stop_ids, pin=pin, cache=cache, seed=msg.seed,
                adapter=adapter, pictures=msg.pictures,
            )  # fmt: skip
            hung = asyncio.get_running_loop().call_later(hung_s, supervisor.unanswered, msg.rid, hung_s)
            try:
                answer = await record.engine.client.generate(body, self.config.samplers.generate_timeout_s)
            finally:
                hung.cancel()
        if msg.pictures and answer.meta_info.finish_reason.type != "abort":
            client.refuse_retokenised(answer, msg.prompt_ids)
        if adapter:
            answer = client.drawn_with(answer, adapter)
        versions = [span.version for span in answer.meta_info.weight_versions]
        if answer.meta_info.finish_reason.type != "abort":
            await supervisor.weights.verify_answer(versions, doubts)
            if self.config.sglang and self.config.in_flight == "in_place" and versions[:1] != [served]:
                raise EngineBusy(f"{msg.rid} met new weights with what {served} made of its prompt")
        generated = client.read_generated(answer)
        if msg.pin is not None and any(span.version != msg.pin for span in generated.spans):
            if self.config.sglang:  # it went on to other weights meanwhile
                raise EngineBusy(f"{msg.rid} was drawn from {generated.spans}, not from {msg.pin} alone")
            raise SamplerError(f"{msg.rid} was drawn from {generated.spans}, not from {msg.pin} alone")
        return generated
