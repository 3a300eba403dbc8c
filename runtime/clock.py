"""Time as a dependency.

Invariant: code that decides by time asks a `Clock`, so a test can hold the clock still and step it. A run has one
clock, the entry point's: deadlines and log moments count in its seconds on every host (`runtime/run_clock.py`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> float:
        """Monotonic seconds of the run; only differences mean something."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch, for people alone: setting the clock moves them."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""
        ...


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """A clock that moves only by `advance`; sleepers wake in the order of their times."""

    def __init__(self, start: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = start
        self._wall_offset = wall - start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_offset

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`, waking sleepers on the way and letting them run before time moves further."""
        end = self._now + seconds
        await _let_others_run()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await _let_others_run()
        self._now = end


async def _let_others_run() -> None:
    # Work woken by a timer may take several turns of the loop (a task, its callback, its waiter) to come to rest.
    for _ in range(20):
        await asyncio.sleep(0)
