"""Time as a dependency, and the one clock of a run.

A run has one clock, the entry point's: deadlines and log moments count in its seconds on every host. `RunClock` follows
it within the interval that the round trips leave, and never steps back once it was set.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

    def now(self) -> float:
        """Monotonic seconds of the run; only differences mean something."""

    def wall(self) -> float:
        """Seconds since the epoch, for people alone: setting the clock moves them."""

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""


class RealClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


PINGS = 8  # at a host's start; the quickest round trip says the most
ROUNDING_S = 1e-6  # of the arithmetic; log moments are no finer
DRIFT = 1e-3  # seconds a second: two clocks that are slewed in opposite ways at the kernel's 500 ppm


class ClockOffset:
    """How far a peer's clock is behind this process's, from round trips (Cristian, "Probabilistic clock
    synchronization", 1989). In seconds, and pure.
    """

    def __init__(self) -> None:
        self._middle = 0.0
        self._error = float("inf")
        self._at = 0.0

    def heard(self, sent: float, theirs: float, received: float) -> None:
        """The peer read `theirs` on its clock after `sent` and before `received` on this process's clock."""
        error = (received - sent) / 2
        if error <= self.error_s(received):
            self._middle, self._error, self._at = (sent + received) / 2 - theirs, error, sent

    def error_s(self, now: float) -> float:
        """The true offset is within so many seconds of the middle; half a round trip, and what drift has added."""
        return self._error + DRIFT * max(0.0, now - self._at)

    @property
    def offset_s(self) -> float:
        """This process's clock less the peer's; 0 where the round trips can't tell the two clocks apart.

        Processes of one machine share its clock, so between them it is exactly 0.
        """
        return 0.0 if abs(self._middle) <= self._error + ROUNDING_S else self._middle


def wall_ahead_s(clock: Clock) -> float:
    """The wall time of `clock` less its monotonic time, from the quickest of three readings."""
    readings = [(clock.now(), clock.wall(), clock.now()) for _ in range(3)]
    before, wall, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return wall - (before + after) / 2


class RunClock:
    """The entry point's clock, computed from this host's own. Until the first `set` it is the host's own."""

    def __init__(self, own: Clock | None = None) -> None:
        self.own = own or RealClock()
        self._offset_s = 0.0
        self._wall_s: float | None = None  # the entry point's wall time less its monotonic time
        self._last = float("-inf")

    def set(self, offset_s: float, wall_s: float) -> None:
        """`offset_s` is the run's clock less this host's; `wall_s` the run's wall time less the run's clock."""
        self._offset_s, self._wall_s = offset_s, wall_s

    def now(self) -> float:
        now = self.own.now() + self._offset_s
        if self._wall_s is None:
            return now
        self._last = max(self._last, now)
        return self._last

    def wall(self) -> float:
        return self.own.wall() if self._wall_s is None else self.now() + self._wall_s

    async def sleep(self, seconds: float) -> None:
        await self.own.sleep(seconds)
