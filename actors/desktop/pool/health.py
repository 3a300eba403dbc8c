"""Whether a pool's host and its image give desktops, for the pool's callers and for the log.

Invariant: each quarantine is logged once when it begins and once when it ends. `wait` returns at once while nothing is
quarantined.
"""

from __future__ import annotations

import asyncio
import time

from actors.desktop import events
from actors.desktop.faults import Culprit
from actors.desktop.pool.host_quarantine import PoolQuarantine
from actors.errors import DesktopFault
from runtime.quarantine import QuarantinePolicy
from runtime.storage.slow_disk import Log


class PoolHealth:
    """The quarantine of one pool. `image` is the image's name in the log."""

    def __init__(self, policy: QuarantinePolicy, image: str, log: Log) -> None:
        self._image = image
        self._log = log
        self._quarantine = PoolQuarantine(policy)
        self._since: dict[str, float] = {}  # "host", "image"
        self._well = asyncio.Event()
        self._well.set()

    @property
    def quarantined(self) -> tuple[str, ...]:
        """What is quarantined: "host", "image"."""
        return self._quarantine.quarantined

    def probe_delay_s(self) -> float:
        """Seconds to wait before the next probe."""
        return self._quarantine.probe_delay_s()

    def faulted(self, error: DesktopFault) -> None:
        """Count a fault against its culprit, where that is the host or its image."""
        if not self._quarantine.faulted(error.culprit, time.monotonic()):
            return
        self._since[error.culprit] = time.monotonic()
        self._well.clear()
        streak = self._quarantine.streak(error.culprit)
        cause, detail = error.cause, error.detail[:400]
        if error.culprit == Culprit.HOST:
            self._log.emit(events.HOST_QUARANTINED, cause=cause, detail=detail, faults=streak)
        else:
            self._log.emit(events.IMAGE_QUARANTINED, image=self._image, cause=cause, detail=detail, faults=streak)

    def booted(self, desktop: str) -> None:
        """A desktop boots and answers, so nothing stays quarantined."""
        for culprit in self._quarantine.booted():
            rested_s = time.monotonic() - self._since.pop(culprit)
            if culprit == Culprit.HOST:
                self._log.emit(events.HOST_LET_BACK, desktop=desktop, rested_s=rested_s)
            else:
                self._log.emit(events.IMAGE_LET_BACK, image=self._image, desktop=desktop, rested_s=rested_s)
        self._well.set()

    def succeeded(self) -> None:
        """An episode came to an outcome: the streaks of host and image are forgotten."""
        self._quarantine.succeeded()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until neither the host nor its image is quarantined. False when one still is after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._well.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """End every `wait`: the pool has stopped."""
        self._well.set()
