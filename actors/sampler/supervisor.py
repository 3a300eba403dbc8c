"""Keeps one engine up and its weights the newest.

Invariant: requests are let through (`healthy`) only while the health machine says so. The newest announced weights
are loaded next, and older ones are skipped.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque

from actors.errors import Deferred, EngineGone, SamplerError
from actors.learner.messages import Ticket
from actors.sampler import events
from actors.sampler.config import SamplerSettings
from actors.sampler.engine.engine import engine_of
from actors.sampler.engine.gate import Gate
from actors.sampler.engine.health import Answered, Event, Health, Lost, ReadBack, Refusal, State, Succeeded, Target
from actors.sampler.engine.limits import Limits
from actors.sampler.probing import silence
from actors.sampler.weights.group_member import Joining
from actors.sampler.weights.latest import Latest, recall, remember, there
from actors.sampler.weights.loader import Loader, Verdict, check_digest
from actors.sampler.weights.pins import Pins
from actors.sampler.weights.serving_report import Telling
from policy.errors import EngineBusy, EngineError
from runtime.actor import Context
from runtime.messaging.message import Version
from runtime.supervision import GiveUp, RestartBudget

MOST_KNOWN = 4096  # versions; what is in flight is of the last few, or pinned for a round


class _OvertakenError(Exception):
    """Newer weights are wanted now than those that a place in a group was asked for."""


class EngineKeeper:
    """Owns the engine of one sampler actor."""

    def __init__(self, settings: SamplerSettings, ctx: Context) -> None:
        self._settings, self._ctx = settings, ctx
        self._memory = ctx.run_dir / "samplers" / f"{ctx.name.replace('/', '-')}.json"
        self.latest, pinned = recall(self._memory, Latest(version=settings.version, location=settings.model))
        self.pins = Pins(pinned, single=settings.sglang)
        self.health = Health(target=self.latest.version)
        self.limits = Limits(vocabulary=0, context=0)
        self.gate = Gate()
        self.loader = Loader(settings, self.gate)
        self._sound: Latest | None = None  # what was last found to be in an engine whole
        self.doubts = 0  # loads that turned out wrong: what was drawn across one is not handed on
        self.engine = engine_of(settings, ctx.name, ctx.run_dir, ctx.clock)
        self._budget = RestartBudget(f"engine of {ctx.name}", settings.restart)
        self._newer = asyncio.Event()
        self._seen = asyncio.Event()  # of the next change of health; replaced by it
        self._telling = Telling(ctx, settings.replay)
        self._joining = Joining(ctx, settings.weight_sync)
        self._known: deque[str] = deque(maxlen=MOST_KNOWN)  # what this life of the engine was found to hold
        self._skipped = 0
        self._probing = False
        self._answered = 0  # requests
        self._broken = 0  # loads in a row that broke
        self._condemned = ""  # why the engine was given up, if it did not end by itself

    async def start(self) -> None:
        """Bring the engine up and keep it so. Raises SamplerError or ConfigError when it does not come up."""
        began = time.monotonic()
        await self._bring_up()
        self._budget.up(self._ctx.clock.now())
        self._ctx.log.emit(
            events.SAMPLER_READY, engine=self.engine.kind, version=str(self.health.served), pid=self.engine.pid,
            start_s=_since(began), restarts=self.health.losses,
        )  # fmt: skip
        self._ctx.spawn(self._keep_up(), "keep the engine up")
        self._ctx.spawn(self._keep_loaded(), "keep the weights new")
        if self._settings.replay:
            self._ctx.spawn(self._telling.keep_told(), "tell what is served")

    async def stop(self) -> None:
        """End the engine."""
        await self.engine.down()

    def announce(self, latest: Latest) -> None:
        """Newer weights exist. Older ones than known are ignored."""
        if latest.version == self.latest.version and self.latest.canary is None and latest.canary is not None:
            self.latest = latest  # those it began with: the learner now says how they score
            self._remember()
            self._ctx.spawn(self._compare(), "compare with the learner")
        elif latest.version == self.latest.version and self.health.target != self._wanted().version:
            self._aim()  # they were refused; what was wrong may have passed
        if latest.version <= self.latest.version:
            return
        self._skipped += self.latest.version != self.health.served
        self.latest = latest
        self._remember()
        self._aim()
        if self._wanted() != latest or self.health.state is State.DEAD:  # an evaluation round holds another version
            self._decline()

    async def pin(self, version: Version, location: str) -> None:
        """Keep a version resident, in this engine and in its successors. Raises SamplerError.

        An SGLang server holds one version: it goes to the pinned one, those pinned first before others, and takes
        newer weights only when nothing is pinned any more.
        """
        new = self.pins.take(version, location)
        self._remember()
        if self._settings.sglang:
            self._aim()
        elif not await self._pin_resident(version, location):
            return
        if new:
            self._ctx.log.emit(events.WEIGHTS_PINNED, version=str(version), location=location)

    async def _pin_resident(self, version: Version, location: str) -> bool:
        try:
            await self.engine.client.pin(str(version), location, self._settings.load_timeout_s)
        except EngineGone as error:
            self.suspect(error)  # its successor pins before it takes requests
        except EngineError as error:
            self.pins.drop(version)
            raise SamplerError(f"{version} can't be pinned: {error}") from error
        else:
            self._known.append(str(version))
        return True

    async def unpin(self, version: Version) -> None:
        """Let a version go; unknown ones are no error. What still asks an engine of one version for it is deferred."""
        dropped = self.pins.drop(version)
        self._remember()
        self._wake()
        if not dropped:
            return
        if self._settings.sglang:
            self._aim()
        else:
            try:
                await self.engine.client.unpin(str(version))
            except (EngineGone, EngineError) as error:
                self.suspect(error)
        self._ctx.log.emit(events.WEIGHTS_UNPINNED, version=str(version))

    async def ready(self, pin: Version | None) -> None:
        """Return once the engine may be asked, and holds `pin` if it can hold only one version. Raises Deferred."""
        while not self.takes(pin):
            if self.pins.deferred(pin):
                raise Deferred(f"the round on {pin} stands back for RL")
            await self._seen.wait()

    def takes(self, pin: Version | None) -> bool:
        """Whether the engine may be asked now."""
        if self.health.state is not State.HEALTHY:
            return False
        return pin is None or not self._settings.sglang or self.health.served == pin

    async def vouch(self, versions: list[str], doubts: int) -> None:
        """Return once what was drawn from `versions` may be handed on; `doubts` is from before it was asked.

        Raises EngineBusy where it may not, because the engine's weights were not found to be those.
        """
        await self.loader.judged.wait()
        strange = [version for version in versions if version not in self._known]
        if strange and not self._probing:
            self._ctx.spawn(self._compare(), "read the version back")
        if strange or self.doubts != doubts:
            raise EngineBusy(f"drawn from weights that were not found sound: {strange or versions}")
        self._answered += 1
        self._see(Succeeded())

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
        before, self.health = self.health, self.health.after(event)
        if self.health == before:
            return
        if isinstance(event, Lost):
            self._known.clear()
        if self.health.served is not None:
            self._known.append(str(self.health.served))
        self._telling.served = self.health.served
        self._wake()

    def _wake(self) -> None:
        self._seen.set()
        self._seen = asyncio.Event()

    def _wanted(self) -> Latest:
        """The weights that the engine is to hold."""
        return self.pins.wanted(self.latest)

    def _remember(self) -> None:
        remember(self._memory, self.latest, self.pins.held)

    def _aim(self) -> None:
        self._see(Target(self._wanted().version, exact=self._settings.sglang))
        self._newer.set()

    async def _whole(self) -> Latest:
        """What an engine starts with: the wanted weights, or the last sound ones where those on the disk are torn.

        Raises EngineError where both are.
        """
        wanted = self._wanted()
        try:
            wanted = await self._joining.written(wanted)
            await check_digest(wanted)
        except (EngineError, EngineGone) as error:
            first = Latest(version=self._settings.version, location=self._settings.model)
            sound = first if self._sound is None or not there(self._sound.location) else self._sound
            if sound == wanted:
                raise
            self._refused(wanted, error)
            await check_digest(sound)
            return sound
        return wanted

    async def _bring_up(self) -> None:
        try:
            latest = await self._whole()
        except EngineError as error:
            raise SamplerError(f"there are no weights to start the engine with: {error}") from error
        self._see(Target(latest.version, exact=True))  # refused by its predecessor, perhaps
        try:
            await self.engine.up(latest)
            self._broken = 0
            self._see(Answered())
            client = self.engine.client
            self.limits = await client.limits(self._settings.model)
            verdict = await (self.loader.load if self._settings.attach else self.loader.judge)(client, latest)
            if not self._settings.sglang:
                await self._pin_again()
            self._judge(verdict, "start", latest)
        except EngineError as error:
            raise SamplerError(f"the engine came up but can't be used: {error}") from error
        if not verdict.sound:
            raise SamplerError(f"the engine came up with wrong weights: it is off by {verdict.off_by}")
        if self.health.served != self.health.target:
            self._newer.set()  # told while it was starting

    async def _pin_again(self) -> None:
        """Pin what the engine's predecessor had pinned. A round whose version is gone pins it anew, or fails."""
        for version, location in list(self.pins.held.items()):
            try:
                await self.engine.client.pin(str(version), location, self._settings.load_timeout_s)
            except EngineError as error:
                self.pins.drop(version)
                self._refused(Latest(version=version, location=location), error)
            else:
                self._known.append(str(version))

    async def _keep_up(self) -> None:
        """Restart a lost engine until the budget is spent; then the actor fails."""
        while True:
            cause = await self.engine.lost()
            cause, self._condemned = self._condemned + cause, ""
            down = time.monotonic()
            self._see(Lost())
            self._decline()
            self._ctx.log.emit(
                events.ENGINE_DIED, cause=cause, exit_code=self.engine.exit_code, last_output=self.engine.last_output
            )
            attempt = 0
            while self.health.state is State.DEAD:
                attempt += 1
                await self.engine.down()
                if attempt > self._settings.restart.max_restarts:  # slow ones never fill a window
                    raise SamplerError(f"the engine did not come back in {attempt - 1} tries: {cause}")
                decision = self._budget.on_failure(self._ctx.clock.now(), cause)
                if isinstance(decision, GiveUp):
                    raise SamplerError(decision.reason)
                await self._ctx.clock.sleep(max(decision.delay_s, self._settings.restart.delay_s(self.health.streak)))
                try:
                    await self._bring_up()
                except SamplerError as error:
                    cause = str(error)
                    self._see(Lost())
                    self._ctx.log.emit(events.ENGINE_NOT_BACK, attempt=attempt, cause=cause)
            self._budget.up(self._ctx.clock.now())
            self._ctx.log.emit(
                events.ENGINE_RESTARTED,
                version=str(self.health.served),
                pid=self.engine.pid,
                down_s=_since(down),
                restarts=self.health.losses,
            )

    async def _probe(self, cause: str) -> None:
        try:
            why = await silence(lambda: self.engine, self.loader, lambda: self._answered)
            if why:
                if self.health.state is not State.DEAD and not self._condemned:
                    self._condemned = f"{cause}; then: {why}; "
                await self.engine.condemn()
            elif self.health.served != self.health.target:
                await self._ctx.clock.sleep(self._settings.restart.delay_s(self._broken))
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
        began, latest = time.monotonic(), self._wanted()
        self._see(Target(latest.version, exact=True))
        skipped, self._skipped = self._skipped, 0
        try:
            ask = functools.partial(self._ask, latest) if self._joining.wanted(latest) else None
            verdict = await self.loader.load(self.engine.client, latest, ask, self._written)
            if verdict.missed:
                self._joining.not_received(latest, verdict.missed)
            if not self._judge(verdict, "load", latest):
                verdict = await self.loader.load(self.engine.client, latest, None, self._written)
                if not self._judge(verdict, "second load", latest):
                    self._condemned = f"its weights are off by {verdict.off_by}; "
                    await self.engine.condemn()
                    return False
        except _OvertakenError:
            return True
        except (EngineGone, EngineError) as error:
            if self.loader.mixed and self.health.state is not State.DEAD:
                self.doubts += 1
                self._condemned = f"it may hold parts of two versions: {error}; "
                await self.engine.condemn()
                return False
            if isinstance(error, EngineGone):
                self._broken += 1
                self._ctx.log.emit(
                    events.WEIGHTS_NOT_LOADED, version=str(latest.version), attempt=self._broken, cause=str(error)
                )
                if self._broken <= self._settings.restart.max_restarts:
                    self.suspect(error)
                    return False
            self._broken = 0
            if latest.version in self.pins.held and self._settings.sglang:
                del self.pins.held[latest.version]  # refused, not deferred: what asks for it waits for its deadline
                self._remember()
                self._aim()
            self._see(Refusal(latest.version))
            self._refused(latest, error)
            if self.health.served is None and self.health.state is not State.DEAD:
                # It serves nothing to go back to, so no request would ever find it at fault.
                self._condemned = f"it serves nothing, and {latest.version} can't be loaded: {error}; "
                await self.engine.condemn()
            return False
        self._broken = 0
        self._ctx.log.emit(
            events.WEIGHTS_LOADED, version=str(latest.version), load_s=_since(began), skipped=skipped,
            location=latest.location, way=verdict.way, off_by=verdict.off_by,
        )  # fmt: skip
        return True

    async def _ask(self, latest: Latest) -> Ticket | None:
        """A place in the group for `latest`; not for what has been overtaken meanwhile."""
        ticket = await self._joining.place(latest, self.engine.client)
        if ticket is None and self._wanted().version != latest.version:
            raise _OvertakenError
        return ticket

    async def _written(self, latest: Latest) -> Latest:
        """`latest` on disk. Raises _OvertakenError where it can't be had and others are wanted now, else EngineGone."""
        try:
            return await self._joining.written(latest)
        except EngineGone as error:
            if self._wanted().version != latest.version and not self.loader.mixed:
                raise _OvertakenError from error
            raise

    def _decline(self) -> None:
        if self.latest.gatherer and self._settings.weight_sync.transport == "collective":
            self._ctx.spawn(self._joining.decline(self.latest), "pass a group by")

    async def _compare(self) -> None:
        """Judge the weights that the engine holds now."""
        if self.health.state is State.DEAD or self._probing:
            return
        latest = self._wanted()
        self._see(Target(latest.version, exact=True))
        try:
            sound = self._judge(await self.loader.judge(self.engine.client, latest), "comparison", latest)
        except (EngineGone, EngineError) as error:
            self.suspect(error)
            return
        if not sound or self.health.served != self.health.target:
            self._newer.set()

    def _judge(self, verdict: Verdict, when: str, asked: Latest) -> bool:
        """Take a verdict on what the engine was `asked` to hold into the machine; whether the weights are sound."""
        if not verdict.sound:
            self.doubts += 1
            self._known = deque((one for one in self._known if one != str(verdict.version)), MOST_KNOWN)
            self._ctx.log.emit(
                events.WEIGHTS_SUSPECT, version=str(verdict.version), off_by=verdict.off_by, when=when,
                tolerance=self._settings.samplers.canary_tolerance,
            )  # fmt: skip
        elif verdict.version == asked.version:
            self._sound = asked
        self._see(ReadBack(verdict.version, verdict.sound, asked.version))
        return verdict.sound

    def _refused(self, weights: Latest, error: EngineGone | EngineError) -> None:
        self._ctx.log.emit(
            events.WEIGHTS_REFUSED,
            version=str(weights.version),
            location=weights.location,
            cause=str(error),
            served=str(self.health.served),
        )


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
