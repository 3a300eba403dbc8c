"""Loads the newest announced weights into one engine.

Invariant: the newest announced weights are loaded next, and older ones are skipped. Pinned weights of an engine that
holds one version come first. An answer that was drawn from unverified weights is discarded.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.errors import EngineGone, SamplerError
from actors.sampler import messages
from actors.sampler.collective import GroupMember
from actors.sampler.config import SamplerSettings
from actors.sampler.health import EngineRecord, Gate
from actors.sampler.loader import Loader, WeightsVerdict, check_digest
from actors.sampler.messages import Weights, weights_exist
from policy.errors import EngineBusy, EngineError
from runtime.actor import Context
from runtime.messaging.message import Version

MOST_UNPINNED = 64  # versions; what still asks for one ends within seconds


class WantedWeights:
    """Which weights one engine is to hold.

    A sampler that starts again hears of them once more: from the learner, and for open rounds from Entropulse.
    """

    def __init__(self, base: Weights, *, single: bool) -> None:
        """`single` is for an engine that holds one version. `base` are the weights that the sampler starts with."""
        self._base, self._single = base, single
        self.announced = base  # the newest that exist
        self.pinned: dict[Version, str] = {}  # to their locations, the first asked for first
        self.verified: Weights | None = None  # the last that an engine was verified to hold whole
        self._unpinned: deque[Version] = deque(maxlen=MOST_UNPINNED)

    @property
    def target(self) -> Weights:
        """The weights that the engine is to hold, or with several versions to draw from by default."""
        if not self._single or not self.pinned:
            return self.announced
        version, location = next(iter(self.pinned.items()))
        return self.announced if version == self.announced.version else Weights(version=version, location=location)

    @property
    def fallback(self) -> Weights:
        """What to start an engine with where the target is torn."""
        return self.verified if self.verified is not None and weights_exist(self.verified.location) else self._base

    def pin(self, version: Version, location: str) -> None:
        if version in self._unpinned:
            self._unpinned.remove(version)
        self.pinned[version] = location

    def unpin(self, version: Version) -> bool:
        """Let a version go; whether that is news. With an engine of one version, requests for it are deferred."""
        new = self.pinned.pop(version, None) is not None
        if self._single and version not in self._unpinned:
            self._unpinned.append(version)
            new = True
        return new

    def refuse(self, version: Version) -> None:
        """A pinned version can't be loaded. Requests for it are not deferred: they wait for their deadline."""
        self.pinned.pop(version, None)

    def deferred(self, version: Version | None) -> bool:
        return version in self._unpinned


class SamplerWeights:
    """The weights of one sampler's engine. `suspect` takes the errors of calls that broke."""

    def __init__(
        self,
        settings: SamplerSettings,
        ctx: Context,
        record: EngineRecord,
        gate: Gate,
        suspect: Callable[[Exception], None],
    ) -> None:
        self._settings, self._ctx, self._record, self._suspect = settings, ctx, record, suspect
        base = Weights(version=settings.version, location=settings.model)
        self.wanted = WantedWeights(base, single=settings.sglang)
        self.loader = Loader(settings, gate)
        self.calls = Gate()  # loads and looks at the engine, which a turn of the learner's waits for
        self._member = GroupMember(ctx, settings.weight_sync)
        self._newer = asyncio.Event()
        self._skipped = 0
        self._refused: Version | None = None  # the target that can't be loaded, while what is served stays

    # --- what is to be held --------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether the engine serves other weights than it is to hold."""
        return self.wanted.target.version not in (self._record.health.served, self._refused)

    def announce(self, latest: Weights) -> None:
        """Newer weights exist. Older ones than known are ignored."""
        known = self.wanted.announced
        if latest.version == known.version and known.canary is None and latest.canary is not None:
            self.wanted.announced = latest  # the weights it began with: the learner now says how they score
            self._ctx.spawn(self._compare(), "compare with the learner")
        elif self._refused == latest.version == self.wanted.target.version:
            self._aim()  # they were refused; what was wrong may have passed
        if latest.version <= known.version:
            return
        self._skipped += known.version != self._record.health.served
        self.wanted.announced = latest
        self._aim()
        if self.wanted.target != latest or not self._record.alive:  # an evaluation round holds another version
            self.decline()

    async def pin(self, version: Version, location: str) -> None:
        """Keep a version resident, in this engine and in its successors. Raises SamplerError.

        An SGLang server holds one version: it goes to the pinned one, the one pinned first before others. It takes
        newer weights only when nothing is pinned any more.
        """
        self.wanted.pin(version, location)
        if self._settings.sglang:
            self._aim()
            return
        try:
            await self._record.engine.client.pin(str(version), location, self._settings.load_limit_s(location))
        except EngineGone as error:
            self._suspect(error)  # its successor pins before it takes requests
        except EngineError as error:
            self.wanted.refuse(version)
            raise SamplerError(f"{version} can't be pinned: {error}") from error
        else:
            self._record.holds(version)
            self._record.wake()

    async def unpin(self, version: Version) -> None:
        """Let a version go; unknown ones are no error. What still asks an engine of one version for it is deferred."""
        new = self.wanted.unpin(version)
        self._record.wake()
        if not new:
            return
        if self._settings.sglang:
            self._aim()
        else:
            try:
                await self._record.engine.client.unpin(str(version))
            except (EngineGone, EngineError) as error:
                self._suspect(error)

    def decline(self) -> None:
        self._ctx.spawn(self._member.decline(self.wanted.announced), "decline a group")

    def retry(self) -> None:
        self._newer.set()

    def _aim(self) -> None:
        self._refused = None
        self._newer.set()

    # --- a new engine --------------------------------------------------------------------------------------------

    async def starting_with(self) -> Weights:
        """What an engine starts with: the target, or the last verified weights where the target's files are torn.

        Raises EngineError where both are.
        """
        target, self._refused = self.wanted.target, None
        if self._settings.sglang_adapters:  # the first weights are started with; `check_started` loads the adapter
            return target
        try:
            target = await self._member.written(target)
            await check_digest(Path(target.location), target.digest)
        except (EngineError, EngineGone) as error:
            if self.wanted.fallback == target:
                raise
            self._refused = target.version
            self._log_refusal(target, error)
            target = self.wanted.fallback
            await check_digest(Path(target.location), target.digest)
        return target

    async def check_started(self, latest: Weights) -> None:
        """Judge, and load into a server that is not ours, what a new engine is to hold.

        Raises EngineError where the engine refuses, SamplerError where its weights are wrong.
        """
        client = self._record.engine.client
        if self._settings.sglang_adapters:  # the start took long, and older adapters may be gone
            latest = self.wanted.target
        loads = self._settings.attach or self.loader.adapter_name(latest.version)
        verdict = await (self.loader.load if loads else self.loader.judge)(client, latest)
        if not self._settings.sglang:
            await self._pin_again()
        if not self._judge(verdict, "start", latest):
            raise SamplerError(f"the engine came up with wrong weights: it is off by {verdict.off_by}")
        if self.behind:
            self._newer.set()  # announced while it was starting

    async def _pin_again(self) -> None:
        """Pin what the engine's predecessor had pinned. A round whose version is gone pins it again, or fails."""
        for version, location in list(self.wanted.pinned.items()):
            try:
                await self._record.engine.client.pin(str(version), location, self._settings.load_limit_s(location))
            except EngineError as error:
                self.wanted.refuse(version)
                self._log_refusal(Weights(version=version, location=location), error)
            else:
                self._record.holds(version)

    # --- newer weights -------------------------------------------------------------------------------------------

    async def follow(self) -> None:
        while True:
            await self._newer.wait()
            self._newer.clear()
            async with self.calls.through():
                await self.catch_up()

    async def catch_up(self) -> None:
        """Load until the engine holds what it is to hold, or refuses it."""
        while self._record.alive and self.behind:
            if not await self._load_newest():
                break

    async def _load_newest(self) -> bool:
        """Whether it was loaded; a refusal leaves the old weights serving."""
        began, latest = time.monotonic(), self.wanted.target
        self._refused = None
        skipped, self._skipped = self._skipped, 0
        try:
            verdict = await self._load_sound(latest)
        except (EngineGone, EngineError) as error:
            if self.wanted.target.version != latest.version and not self.loader.mixed:
                return True  # overtaken: the newest are loaded next
            await self._not_loaded(latest, error)
            return False
        if verdict is None:
            return False
        self._record.broken_loads = 0
        self._ctx.log.emit(
            messages.WEIGHTS_LOADED, version=str(latest.version), load_s=round(time.monotonic() - began, 3),
            skipped=skipped, location=latest.location, way=verdict.way, **_figures(verdict),
        )  # fmt: skip
        return True

    async def _load_sound(self, latest: Weights) -> WeightsVerdict | None:
        """The verdict on `latest`, loaded a second time where it was off; None where the engine was given up for it."""
        client = self._record.engine.client
        ask = functools.partial(self._member.place, latest, client) if self._member.wanted(latest) else None
        verdict = await self.loader.load(client, latest, ask, self._member.written)
        if verdict.missed:
            self._member.not_received(latest, verdict.missed)
        if self._judge(verdict, "load", latest):
            return verdict
        verdict = await self.loader.load(self._record.engine.client, latest, None, self._member.written)
        if self._judge(verdict, "second load", latest):
            return verdict
        await self._record.condemn(f"its weights are off by {verdict.off_by}")
        return None

    async def _not_loaded(self, latest: Weights, error: EngineGone | EngineError) -> None:
        """Try again where the engine may be alive; refuse what it can't load; give up what may hold a mixture."""
        if self.loader.mixed and self._record.alive:
            self._record.doubts += 1
            await self._record.condemn(f"it may hold parts of two versions: {error}")
            return
        if isinstance(error, EngineGone):
            self._record.broken_loads += 1
            self._ctx.log.emit(
                messages.WEIGHTS_NOT_LOADED, version=str(latest.version), attempt=self._record.broken_loads,
                cause=str(error),
            )  # fmt: skip
            if self._record.broken_loads <= self._settings.restart.max_restarts:
                self._suspect(error)
                return
        self._record.broken_loads = 0
        if latest.version in self.wanted.pinned and self._settings.sglang:
            self.wanted.refuse(latest.version)
            self._aim()
        self._refused = latest.version
        self._log_refusal(latest, error)
        if self._record.health.served is None and self._record.alive:
            # It serves nothing to go back to, so no request would ever find it at fault.
            await self._record.condemn(f"it serves nothing, and {latest.version} can't be loaded: {error}")

    # --- what is held --------------------------------------------------------------------------------------------

    async def verify_answer(self, versions: list[str], doubts: int) -> None:
        """Return once what was drawn from `versions` may be handed on; `doubts` is from before it was asked.

        Raises EngineBusy where it may not, because the engine's weights were not found to be those.
        """
        await self.loader.judged.wait()
        strange = self._record.strange(versions)
        if strange and not self._record.probing:
            self._ctx.spawn(self._compare(), "read the version back")
        if strange or self._record.doubts != doubts:
            raise EngineBusy(f"drawn from weights that were not found sound: {strange or versions}")
        self._record.succeeded()

    async def _compare(self) -> None:
        if not self._record.alive or self._record.probing:
            return
        latest = self.wanted.target
        self._refused = None
        try:
            async with self.calls.through():
                sound = self._judge(await self.loader.judge(self._record.engine.client, latest), "comparison", latest)
        except (EngineGone, EngineError) as error:
            self._suspect(error)
            return
        if not sound or self.behind:
            self._newer.set()

    def _judge(self, verdict: WeightsVerdict, when: str, asked: Weights) -> bool:
        """Take a verdict on what the engine was `asked` to hold into the machine; whether the weights are sound."""
        if not verdict.sound:
            self._record.distrust(verdict.version)
            tolerance = self.loader.tolerance(asked.canary) if asked.canary else 0.0
            version = str(verdict.version)
            self._ctx.log.emit(
                messages.WEIGHTS_SUSPECT, version=version, when=when, tolerance=tolerance, **_figures(verdict)
            )
        elif verdict.version == asked.version:
            self.wanted.verified = asked
            if verdict.off_by is not None and self.loader.measured is None:
                self.loader.measured = verdict.off_by.mean
        self._record.becomes(self._record.health.read_back(verdict.version, asked.version, sound=verdict.sound))
        return verdict.sound

    def _log_refusal(self, weights: Weights, error: EngineGone | EngineError) -> None:
        self._ctx.log.emit(
            messages.WEIGHTS_REFUSED, version=str(weights.version), location=weights.location, cause=str(error),
            served=str(self._record.health.served),
        )  # fmt: skip


def _figures(verdict: WeightsVerdict) -> dict[str, Any]:
    off_by = verdict.off_by
    if off_by is None:
        return {"off_by": None, "p99": None, "largest": None}
    return {"off_by": off_by.mean, "p99": off_by.p99, "largest": off_by.largest}
