"""Diagnosis of what does not move.

Invariant: a wait past its deadline is reported once, and so is a message that keeps an actor busy for too long. The
report says who waits for which message from whom since when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from runtime.logs.runtime_events import HOST_LAGS, STALL
from runtime.waits import PendingWait, waits_now

if TYPE_CHECKING:
    from runtime.hosts.inline import InlineHost

GRACE_S = 2.0  # a wait this far past its deadline was not ended by it


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a handler: `actor` works on `message` from `sender` since `since` (monotonic seconds)."""

    id: str
    actor: str
    message: str
    sender: str
    since: float
    trace: str | None
    limit_s: float


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """`who` waits for `what` from `whom` for `waited_s` seconds."""

    id: str
    who: str
    what: str
    whom: str
    waited_s: float
    cause: str  # "busy" or "overdue"
    trace: str | None


def diagnose(now: float, waits: Iterable[tuple[int, PendingWait]], busy: Iterable[Busy]) -> list[Stall]:
    """All stalls at `now`, longest first. Pure."""
    stalls = [
        Stall(
            id=f"wait {key}",
            who=wait.who,
            what=wait.what,
            whom=wait.whom,
            waited_s=now - wait.since,
            cause="overdue",
            trace=wait.trace,
        )
        for key, wait in waits
        if now > wait.deadline + GRACE_S
    ]
    stalls += [
        Stall(
            id=f"message {work.id}",
            who=work.sender,
            what=work.message,
            whom=work.actor,
            waited_s=now - work.since,
            cause="busy",
            trace=work.trace,
        )
        for work in busy
        if now - work.since > work.limit_s
    ]
    return sorted(stalls, key=lambda stall: -stall.waited_s)


class StallWatch:
    """Looks at one host's actors and waits from time to time and logs each stall once."""

    def __init__(self, host: InlineHost, after_s: float, period_s: float | None = None) -> None:
        self._host = host
        self._after_s = after_s
        self._period_s = period_s if period_s is not None else max(0.05, min(5.0, after_s / 4))
        self._reported: set[str] = set()
        self._lag_s = 0.0

    def take_lag_s(self) -> float:
        """How late the loop was at the latest since the last call, in seconds; it is sampled once a period."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._period_s)
            lag = time.monotonic() - before - self._period_s
            self._lag_s = max(self._lag_s, lag)
            if lag > self._after_s:
                self._host.node.log.emit(HOST_LAGS, lag_s=round(lag, 3))
            self.look(time.monotonic())

    def _since(self, stall: Stall) -> str:
        wall = self._host.node.clock.wall() - stall.waited_s
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")

    def look(self, now: float) -> list[Stall]:
        """Log the stalls that are new at `now` and return all."""
        busy = [
            Busy(
                id=envelope.id,
                actor=cell.name,
                message=envelope.message,
                sender=envelope.sender,
                since=since,
                trace=envelope.trace,
                limit_s=handler.slow_after_s if handler.slow_after_s is not None else self._after_s,
            )
            for cell in self._host.cells.values()
            for envelope, since, handler in cell.in_flight.values()
        ]
        stalls = diagnose(now, waits_now(), busy)
        for stall in stalls:
            if stall.id not in self._reported:
                self._host.node.log.emit(
                    STALL,
                    trace=stall.trace,
                    who=stall.who,
                    what=stall.what,
                    whom=stall.whom,
                    since=self._since(stall),
                    waited_s=round(stall.waited_s, 3),
                    cause=stall.cause,
                )
        self._reported = {stall.id for stall in stalls}
        return stalls
