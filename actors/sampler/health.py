"""Whether an engine may be asked, and for which weights.

DEAD: nothing is known to answer. STALE: the engine answers, with weights not yet known to be the right ones. HEALTHY:
the engine answered, said afterwards that it holds the weights, and computed with them what the learner does.

Invariant: a request goes only to an engine whose weights were read back in its present life, and were not found wrong.
A streak of failures ends only when the engine has answered a request.

A transition is missing on purpose: nothing leads from DEAD to HEALTHY. An engine that comes back may hold any
weights, such as those that it was started with. Samples drawn from unknown weights are worse than none. HEALTHY stays
HEALTHY while newer weights are on their way: the old ones are known, and staleness is bounded elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

import msgspec

from actors.sampler.engine import Engine
from runtime.messaging.message import Version


class EngineState(StrEnum):
    """What is known of the engine."""

    DEAD = "dead"
    STALE = "stale"
    HEALTHY = "healthy"


class EngineHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. `served` is set exactly while HEALTHY."""

    state: EngineState = EngineState.DEAD
    served: Version | None = None
    losses: int = 0  # lives that ended, since the beginning
    streak: int = 0  # failures since it last answered a request

    def answered(self) -> EngineHealth:
        return msgspec.structs.replace(self, state=EngineState.STALE) if self.state is EngineState.DEAD else self

    def read_back(self, version: Version | None, asked: Version, *, sound: bool = True) -> EngineHealth:
        """The engine said which weights it holds: those that it was `asked` to load, or others.

        `version` is None for a name that is no version. `sound` is false when the canary prompt's log-probabilities are
        not the learner's.
        """
        if self.state is EngineState.DEAD:
            return self
        if sound and version == asked:
            return msgspec.structs.replace(self, state=EngineState.HEALTHY, served=version)
        if sound and self.state is EngineState.HEALTHY and version == self.served:
            return self  # the new weights have not arrived yet
        return msgspec.structs.replace(self, state=EngineState.STALE, served=None)

    def lost(self) -> EngineHealth:
        return EngineHealth(losses=self.losses + (self.state is not EngineState.DEAD), streak=self.streak + 1)

    def succeeded(self) -> EngineHealth:
        """The engine answered a request of an episode: more than a probe after its start shows."""
        return msgspec.structs.replace(self, streak=0) if self.state is EngineState.HEALTHY else self


class Gate:
    """Counts requests; one part of the program at a time closes it."""

    def __init__(self) -> None:
        self.inside = 0  # requests with the engine
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()
        self._closing = asyncio.Lock()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        while not self._open.is_set():  # a request that was woken may find it closed again
            await self._open.wait()
        self.inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._empty.set()

    @asynccontextmanager
    async def closed(self, timeout_s: float) -> AsyncIterator[None]:
        """Keep requests out; begins when those inside have left. Raises TimeoutError when they don't."""
        async with self._closing:
            self._open.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
                yield
            finally:
                self._open.set()


MOST_SOUND = 4096  # versions; what is in flight is of the last few, or pinned for a round


class EngineRecord:
    """Shared by the part that keeps the process up and the part that keeps its weights the newest."""

    def __init__(self, engine: Engine, serves: Callable[[Version | None], None]) -> None:
        self.engine = engine
        self.health = EngineHealth()
        self.probing = False
        self.answered = 0  # requests
        self.broken_loads = 0  # in a row
        self.doubts = 0  # loads that turned out wrong: what was drawn across one is not handed on
        self._serves = serves
        self._sound: deque[str] = deque(maxlen=MOST_SOUND)  # what this life of the engine was found to hold
        self._condemned = ""  # why the engine was given up, if it did not end by itself
        self._changed = asyncio.Event()  # of the next change; replaced by it

    @property
    def alive(self) -> bool:
        return self.health.state is not EngineState.DEAD

    def becomes(self, health: EngineHealth) -> None:
        before, self.health = self.health, health
        if health == before:
            return
        if health.state is EngineState.DEAD:
            self._sound.clear()
        if health.served is not None:
            self.holds(health.served)
        self._serves(health.served)
        self.wake()

    def came_up(self) -> None:
        self.broken_loads = 0
        self.becomes(self.health.answered())

    def succeeded(self) -> None:
        self.answered += 1
        self.becomes(self.health.succeeded())

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self) -> None:
        await self._changed.wait()

    def holds(self, version: Version) -> None:
        self._sound.append(str(version))

    def distrust(self, version: Version | None) -> None:
        """What the engine holds under that name is something else."""
        self.doubts += 1
        self._sound = deque((sound for sound in self._sound if sound != str(version)), MOST_SOUND)

    def strange(self, versions: list[str]) -> list[str]:
        return [version for version in versions if version not in self._sound]

    async def condemn(self, why: str) -> None:
        """Give the engine up. The first reason in its life is the one that its end is said with."""
        if self.alive and not self._condemned:
            self._condemned = f"{why}; "
        await self.engine.condemn()

    async def lost(self) -> str:
        cause = await self.engine.lost()
        cause, self._condemned = self._condemned + cause, ""
        return cause
