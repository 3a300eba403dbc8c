"""Keeps the engine of one sampler up.

Invariant: requests are let through (`ready`) only while the health machine says so. A silent engine is given up only
when it left a request of one token unanswered. It must have loaded nothing and answered no other request meanwhile.
The served version is reported to the ledger until that has acknowledged it, and again from time to time. A report may
name an older version than the served one, and never a newer one.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from actors.errors import Deferred, EngineGone, SamplerError
from actors.replay.messages import SERVING_AGAIN_S, Serving
from actors.sampler import events
from actors.sampler.config import SamplerSettings
from actors.sampler.engine.client import Limits
from actors.sampler.engine.engine import engine_of
from actors.sampler.engine.gate import Gate
from actors.sampler.engine.health import EngineLost, EngineState
from actors.sampler.engine.record import EngineRecord
from actors.sampler.weights.keeper import WeightsKeeper
from policy.errors import EngineBusy, EngineError
from runtime.actor import Context
from runtime.messaging.message import Version
from runtime.messaging.refs import PAUSES, TRANSIENT
from runtime.supervision import GiveUp, RestartBudget

PROBE_TIMEOUT_S = 15.0


class EngineSupervisor:
    """Owns the engine of one sampler actor; `weights` keeps what the engine holds."""

    def __init__(self, settings: SamplerSettings, ctx: Context) -> None:
        self._settings, self._ctx = settings, ctx
        self.gate = Gate()
        self.limits = Limits(vocabulary=0, context=0)
        self._report = ServingReport(ctx, settings.replay)
        engine = engine_of(settings, ctx.name, ctx.run_dir, ctx.clock)
        self.record = EngineRecord(engine, settings.version, self._report.serves)
        self.weights = WeightsKeeper(settings, ctx, self.record, self.gate, self.suspect)
        self._budget = RestartBudget(f"engine of {ctx.name}", settings.restart)

    async def start(self) -> None:
        """Bring the engine up and keep it so. Raises SamplerError or ConfigError when it does not come up."""
        began = time.monotonic()
        await self._bring_up()
        self._budget.up(self._ctx.clock.now())
        engine, health = self.record.engine, self.record.health
        self._ctx.log.emit(
            events.SAMPLER_READY, engine=engine.kind, version=str(health.served), pid=engine.pid,
            start_s=round(time.monotonic() - began, 3), restarts=health.losses,
        )  # fmt: skip
        self._ctx.spawn(self._keep_up(), "keep the engine up")
        self._ctx.spawn(self.weights.keep_loaded(), "keep the weights new")
        if self._settings.replay:
            self._ctx.spawn(self._report.keep_reporting(), "report what is served")

    async def stop(self) -> None:
        """End the engine."""
        await self.record.engine.down()

    async def ready(self, pin: Version | None) -> None:
        """Return once the engine may be asked, and holds `pin` if it can hold only one version. Raises Deferred."""
        while not self.takes(pin):
            if self.weights.pins.deferred(pin):
                raise Deferred(f"the round on {pin} is deferred while RL draws")
            await self.record.change()

    def takes(self, pin: Version | None) -> bool:
        """Whether the engine may be asked now."""
        health = self.record.health
        if health.state is not EngineState.HEALTHY:
            return False
        return pin is None or not self._settings.sglang or health.served == pin

    def unanswered(self, rid: str, waited_s: float) -> None:
        """A request has had no answer for long: say so, and find out whether the engine still generates."""
        if self.record.alive and not self.record.probing:
            self._ctx.log.emit(events.ENGINE_SILENT, rid=rid, waited_s=waited_s, pid=self.record.engine.pid)
            self.suspect(EngineGone(f"no answer to {rid} for {waited_s:g} s"))

    def suspect(self, error: Exception) -> None:
        """A call broke: find out whether the engine still generates, and give it up if not."""
        if self.record.alive and not self.record.probing:
            self.record.probing = True
            self._ctx.spawn(self._probe(str(error)), "probe the engine")

    async def _bring_up(self) -> None:
        try:
            latest = await self.weights.first()
        except EngineError as error:
            raise SamplerError(f"there are no weights to start the engine with: {error}") from error
        try:
            location = await self.weights.here(latest.location)
            await self.record.engine.up(msgspec.structs.replace(latest, location=location))
            self.record.came_up()
            self.limits = await self.record.engine.client.limits(await self.weights.here(self._settings.model))
            await self.weights.begin(latest)
        except EngineError as error:
            raise SamplerError(f"the engine came up but can't be used: {error}") from error

    async def _keep_up(self) -> None:
        """Restart a lost engine until the budget is spent; then the actor fails."""
        engine = self.record.engine
        while True:
            cause = await self.record.lost()
            down = time.monotonic()
            self.record.see(EngineLost())
            self.weights.decline()
            self._ctx.log.emit(
                events.ENGINE_DIED, cause=cause, exit_code=engine.exit_code, last_output=engine.last_output
            )
            attempt = 0
            while not self.record.alive:
                attempt += 1
                await engine.down()
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
                    self.record.see(EngineLost())
                    self._ctx.log.emit(events.ENGINE_NOT_BACK, attempt=attempt, cause=cause)
            self._budget.up(self._ctx.clock.now())
            health = self.record.health
            self._ctx.log.emit(
                events.ENGINE_RESTARTED, version=str(health.served), pid=engine.pid,
                down_s=round(time.monotonic() - down, 3), restarts=health.losses,
            )  # fmt: skip

    async def _probe(self, cause: str) -> None:
        try:
            why = await self._silence()
            if why:
                await self.record.condemn(f"{cause}; then: {why}")
            elif self.record.behind:
                await self._ctx.clock.sleep(self._settings.restart.delay_s(self.record.broken_loads))
                self.weights.load_again()
        finally:
            self.record.probing = False

    async def _silence(self) -> str:
        """Why the engine is dead, "" where it is not."""
        judged = self.weights.loader.judged
        while True:
            await judged.wait()  # while it loads it may be paused
            before = self.record.answered
            try:
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
        """The engine serves that now; None is not reported."""
        if version is not None and version != self._served:
            self._changed.set()
        self._served = version

    async def keep_reporting(self) -> None:
        """Report to the ledger, for ever."""
        reported: Version | None = None
        failures = 0
        while True:
            version = self._served
            if version is None or version == reported:
                try:
                    async with asyncio.timeout(SERVING_AGAIN_S):
                        await self._changed.wait()
                except TimeoutError:
                    reported = None
                self._changed.clear()
                continue
            try:
                serving = Serving(sampler=self._ctx.name, version=version)
                await self._ctx.ref(self._replay).ask(serving, timeout_s=_REPORT_TIMEOUT_S)
            except TRANSIENT as error:  # asked again, for the version that is served then
                self._ctx.log.emit(events.SERVING_NOT_REPORTED, version=str(version), cause=str(error))
                failures += 1
                await self._ctx.clock.sleep(PAUSES.delay_s(failures))
            else:
                reported, failures = version, 0
