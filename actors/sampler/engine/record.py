"""The engine of one sampler, and what is known of it.

Invariant: `strange` names every version that this life of the engine was not found to hold. A change of health wakes
every waiter. The reason for giving an engine up is reported with its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from actors.sampler.engine.engine import Engine
from actors.sampler.engine.health import Answered, EngineHealth, EngineLost, EngineState, Event, Succeeded
from runtime.messaging.message import Version

MOST_SOUND = 4096  # versions; what is in flight is of the last few, or pinned for a round


class EngineRecord:
    """Shared by the part that keeps the process up and the part that keeps its weights the newest."""

    def __init__(self, engine: Engine, target: Version, serves: Callable[[Version | None], None]) -> None:
        self.engine = engine
        self.health = EngineHealth(target=target)
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
        """Whether the engine is known to answer."""
        return self.health.state is not EngineState.DEAD

    @property
    def behind(self) -> bool:
        """Whether the engine serves other weights than it is to hold."""
        return self.health.served != self.health.target

    def see(self, event: Event) -> None:
        """Take an event into the health machine."""
        before, self.health = self.health, self.health.after(event)
        if self.health == before:
            return
        if isinstance(event, EngineLost):
            self._sound.clear()
        if self.health.served is not None:
            self.holds(self.health.served)
        self._serves(self.health.served)
        self.wake()

    def came_up(self) -> None:
        """A new life begins: the engine has generated a token."""
        self.broken_loads = 0
        self.see(Answered())

    def succeeded(self) -> None:
        """The engine has answered a request, by weights that are sound."""
        self.answered += 1
        self.see(Succeeded())

    def wake(self) -> None:
        """Wake all that wait in `change`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    def holds(self, version: Version) -> None:
        """The engine was found to hold `version`."""
        self._sound.append(str(version))

    def distrust(self, version: Version | None) -> None:
        """What the engine holds under that name is something else."""
        self.doubts += 1
        self._sound = deque((sound for sound in self._sound if sound != str(version)), MOST_SOUND)

    def strange(self, versions: list[str]) -> list[str]:
        """Those of `versions` that the engine was not found to hold."""
        return [version for version in versions if version not in self._sound]

    async def condemn(self, why: str) -> None:
        """Give the engine up. The first reason in its life is the one that its end is said with."""
        if self.alive and not self._condemned:
            self._condemned = f"{why}; "
        await self.engine.condemn()

    async def lost(self) -> str:
        """Return the cause, once the engine is gone."""
        cause = await self.engine.lost()
        cause, self._condemned = self._condemned + cause, ""
        return cause
