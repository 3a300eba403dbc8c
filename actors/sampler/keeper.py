"""Keeps one engine up and its weights the newest.

Invariant: requests are let through (`healthy`) only while the health machine says so; whatever was told last is
loaded next, and what lies between is skipped.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from actors.replay.messages import Serving
from actors.sampler import events
from actors.sampler.config import SamplerSettings
from actors.sampler.engine import AttachedEngine, EmbeddedEngine, Engine
from actors.sampler.health import Answered, Event, Health, Lost, ReadBack, Refusal, State, Target
from actors.sampler.latest import Latest, recall, remember
from actors.sampler.limits import Limits
from policy.engine.architecture import read_architecture
from runtime.actor import Context
from runtime.errors import (
    ActorFailed,
    ActorGone,
    ConfigError,
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineGone,
    MailboxFull,
    SamplerError,
)
from runtime.message import Version
from runtime.supervision import GiveUp, RestartBudget

_PROBE_TIMEOUT_S = 15.0
_TELL_TIMEOUT_S = 10.0
_TELL_DELAYS_S = (0.5, 1.0, 2.0, 5.0)
_TELL_AGAIN_S = 45.0  # several times within `replay.sampler_silent_s`


class EngineKeeper:
    """Owns the engine of one sampler actor."""

    def __init__(self, settings: SamplerSettings, ctx: Context) -> None:
        self._settings, self._ctx = settings, ctx
        self._memory = ctx.run_dir / "samplers" / f"{ctx.name.replace('/', '-')}.json"
        first = Latest(version=settings.version, location=settings.model)
        self.latest = recall(self._memory, first)
        self.health = Health(target=self.latest.version)
        self.pins: dict[Version, str] = {}
        self.limits = Limits(vocabulary=0, context=0)
        self.healthy = asyncio.Event()
        self.in_flight = 0  # requests with the engine; kept by the actor
        self.engine: Engine = (
            AttachedEngine(settings, ctx.clock) if settings.attach else EmbeddedEngine(settings, ctx.name, ctx.run_dir)
        )
        self._budget = RestartBudget(f"engine of {ctx.name}", settings.restart)
        self._newer = asyncio.Event()
        self._serving = asyncio.Event()
        self._skipped = 0
        self._probing = False
        self._condemned = ""  # why the engine was given up, if it did not end by itself

    async def start(self) -> None:
        """Bring the engine up and keep it so. Raises SamplerError or ConfigError when it does not come up."""
        began = time.monotonic()
        await self._bring_up()
        self._ctx.log.emit(
            events.SAMPLER_READY,
            engine=self.engine.kind,
            version=str(self.health.served),
            pid=self.engine.pid,
            start_s=_since(began),
            restarts=self.health.losses,
        )
        self._ctx.spawn(self._keep_up(), "keep the engine up")
        self._ctx.spawn(self._keep_loaded(), "keep the weights new")
        if self._settings.replay:
            self._ctx.spawn(self._keep_told(), "tell what is served")

    async def stop(self) -> None:
        """End the engine."""
        await self.engine.down()

    def announce(self, latest: Latest) -> None:
        """Newer weights exist. Older ones than known are ignored."""
        if latest.version <= self.latest.version:
            return
        self._skipped += self.latest.version != self.health.served
        self.latest = latest
        remember(self._memory, latest)
        self._see(Target(latest.version))
        self._newer.set()

    async def pin(self, version: Version, location: str) -> None:
        """Keep a version resident, in this engine and in its successors. Raises SamplerError."""
        if self._settings.attach:
            raise SamplerError("an attached server holds one weight version: it can't pin another")
        new = self.pins.get(version) != location
        self.pins[version] = location
        try:
            await self.engine.client.pin(str(version), location, self._settings.load_timeout_s)
        except EngineGone as error:
            self.suspect(error)  # its successor pins before it takes requests
        except EngineError as error:
            self.pins.pop(version, None)
            raise SamplerError(f"{version} can't be pinned: {error}") from error
        if new:
            self._ctx.log.emit(events.WEIGHTS_PINNED, version=str(version), location=location)

    async def unpin(self, version: Version) -> None:
        """Let a version go; unknown ones are no error."""
        if self.pins.pop(version, None) is None:
            return
        try:
            await self.engine.client.unpin(str(version))
        except (EngineGone, EngineError) as error:
            self.suspect(error)
        self._ctx.log.emit(events.WEIGHTS_UNPINNED, version=str(version))

    def unanswered(self, rid: str, waited_s: float) -> None:
        """A request has had no answer for long: say so, and find out whether the engine still generates."""
        if self.health.state is not State.DEAD and not self._probing:
            self._ctx.log.emit(events.ENGINE_SILENT, rid=rid, waited_s=waited_s, pid=self.engine.pid)
            self.suspect(EngineGone(f"no answer to {rid} for {waited_s:g} s"))

    def suspect(self, error: Exception) -> None:
        """A call broke: find out whether the engine still generates, and give it up if not."""
        if self.health.state is not State.DEAD and not self._probing:
            self._probing = True
            self._ctx.spawn(self._probe(str(error)), "probe the engine")

    # --- life ----------------------------------------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        served = self.health.served
        self.health = self.health.after(event)
        if self.health.state is State.HEALTHY:
            self.healthy.set()
        else:
            self.healthy.clear()
        if self.health.served not in (None, served):
            self._serving.set()

    async def _bring_up(self) -> None:
        latest = self.latest
        try:
            await self.engine.up(latest)
            self._see(Answered())
            shape = await asyncio.to_thread(_vocabulary, self._settings)
            self.limits = Limits(vocabulary=shape, context=await self.engine.client.context_length())
            if self._settings.attach:
                await self._load(latest)
            await self._pin_again()
            await self._read_back()
        except EngineError as error:
            raise SamplerError(f"the engine came up but can't be used: {error}") from error
        if self.health.served != self.health.target:
            self._newer.set()  # told while it was starting

    async def _pin_again(self) -> None:
        """Pin what the engine's predecessor had pinned; whoever needs a version that is gone pins it anew or fails."""
        for version, location in list(self.pins.items()):
            try:
                await self.engine.client.pin(str(version), location, self._settings.load_timeout_s)
            except EngineError as error:
                self.pins.pop(version, None)
                self._refused(Latest(version=version, location=location), error)

    async def _keep_up(self) -> None:
        """Restart a lost engine until the budget is spent; then the actor fails."""
        while True:
            cause = await self.engine.lost()
            cause, self._condemned = self._condemned + cause, ""
            down = time.monotonic()
            self._see(Lost())
            self._ctx.log.emit(
                events.ENGINE_DIED,
                cause=cause,
                exit_code=self.engine.exit_code,
                last_output=self.engine.last_output,
            )
            while self.health.state is State.DEAD:
                await self.engine.down()
                decision = self._budget.on_failure(self._ctx.clock.now(), cause)
                if isinstance(decision, GiveUp):
                    raise SamplerError(decision.reason)
                await self._ctx.clock.sleep(decision.delay_s)
                try:
                    await self._bring_up()
                except ConfigError:
                    raise
                except SamplerError as error:
                    cause = str(error)
                    self._see(Lost())
            self._ctx.log.emit(
                events.ENGINE_RESTARTED,
                version=str(self.health.served),
                pid=self.engine.pid,
                down_s=_since(down),
                restarts=self.health.losses,
            )

    async def _probe(self, cause: str) -> None:
        try:
            await self.engine.client.first_token(0, _PROBE_TIMEOUT_S)
        except EngineBusy:
            pass  # a full line is a sign of life
        except (EngineError, SamplerError) as error:
            if self.health.state is not State.DEAD and not self._condemned:
                self._condemned = f"{cause}; then: {error}; "
            await self.engine.condemn()
        else:
            if self.health.served != self.health.target:
                self._newer.set()
        finally:
            self._probing = False

    # --- weights -------------------------------------------------------------------------------------------------

    async def _keep_loaded(self) -> None:
        """Load what was told last, whenever that is not what is served."""
        while True:
            await self._newer.wait()
            self._newer.clear()
            while self.health.state is not State.DEAD and self.health.served != self.health.target:
                if not await self._load_newest():
                    break

    async def _load_newest(self) -> bool:
        """Whether it was loaded; a refusal leaves the old weights serving."""
        began, latest = time.monotonic(), self.latest
        skipped, self._skipped = self._skipped, 0
        try:
            await self._load(latest)
            await self._read_back()
        except EngineGone as error:
            self.suspect(error)
            return False
        except EngineError as error:
            self._see(Refusal(latest.version))
            self._refused(latest, error)
            return False
        self._ctx.log.emit(
            events.WEIGHTS_LOADED,
            version=str(latest.version),
            load_s=_since(began),
            skipped=skipped,
            location=latest.location,
        )
        return True

    def _refused(self, weights: Latest, error: EngineError) -> None:
        self._ctx.log.emit(
            events.WEIGHTS_REFUSED,
            version=str(weights.version),
            location=weights.location,
            cause=str(error),
            served=str(self.health.served),
        )

    async def _load(self, latest: Latest) -> None:
        await self.engine.client.update(
            latest.location,
            str(latest.version),
            self._settings.load_timeout_s,
            digest=latest.digest,
            retract=self._settings.samplers.update == "retract",
            pause=bool(self._settings.attach),
        )

    async def _read_back(self) -> None:
        info = await self.engine.client.model_info()
        try:
            version = Version.parse(info.weight_version)
        except ValueError:
            version = None
        self._see(ReadBack(version))

    async def _keep_told(self) -> None:
        """Tell the ledger what is served, until it has heard it, and again from time to time."""
        told: Version | None = None
        failures = 0
        while True:
            if self.health.served in (None, told):
                try:
                    async with asyncio.timeout(_TELL_AGAIN_S):
                        await self._serving.wait()
                except TimeoutError:
                    told = None
                self._serving.clear()
                continue
            version = self.health.served
            try:
                serving = Serving(sampler=self._ctx.name, version=version)
                await self._ctx.ref(self._settings.replay).ask(serving, timeout_s=_TELL_TIMEOUT_S)
            except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull) as error:
                self._ctx.log.emit(events.SERVING_NOT_TOLD, version=str(version), cause=str(error))
                await self._ctx.clock.sleep(_TELL_DELAYS_S[min(failures, len(_TELL_DELAYS_S) - 1)])
                failures += 1
            else:
                told, failures = version, 0


def _vocabulary(settings: SamplerSettings) -> int:
    return read_architecture(Path(settings.model)).vocab_size


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
