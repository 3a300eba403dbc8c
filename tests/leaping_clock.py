"""A clock whose sleepers wake at once, later by what they slept."""

from __future__ import annotations


class LeapingClock:
    """Time moves by sleeping alone."""

    def __init__(self, start: float = 0.0, wall: float = 0.0) -> None:
        self.seconds, self.ahead = start, wall - start
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.slept.append(seconds)
