"""Whether a pool's host and its image give desktops, for the pool's callers and for the log.

Invariant: each quarantine is logged once when it begins and once when it ends. `wait` returns at once while nothing is
quarantined. A quarantine begins after so many faults in a row and ends only with a desktop that boots and answers. The
streak is forgotten only after an episode with an outcome, so the next fault quarantines again.

Transitions that are missing on purpose, beside the missing ones of `runtime.supervision`:
- quarantined -> free by an episode that ends well: it began before and tells nothing of new desktops.
- free -> free with a shorter streak by a boot: a host may boot desktops and then lose each of them.
"""

from __future__ import annotations

import asyncio
import time

from actors.desktop import events
from actors.desktop.faults import Culprit
from actors.errors import DesktopFault
from runtime.disk import Log
from runtime.supervision import Quarantine, QuarantinePolicy

KEPT = (Culprit.HOST, Culprit.IMAGE)
_USE, _PROBE = 0, 1


class PoolQuarantine:
    """The faults of one pool's host and image."""

    def __init__(self, policy: QuarantinePolicy) -> None:
        self._policy = policy
        self._kept = {str(culprit): Quarantine() for culprit in KEPT}

    @property
    def quarantined(self) -> tuple[str, ...]:
        """What is quarantined: "host", "image"."""
        return tuple(culprit for culprit, kept in self._kept.items() if kept.quarantined)

    def faulted(self, culprit: str, now: float) -> bool:
        """Count a fault; whether its culprit is quarantined since now. Culprits that are not kept count nowhere."""
        kept = self._kept.get(culprit)
        if kept is None:
            return False
        use = _PROBE if kept.quarantined else _USE
        self._kept[culprit] = kept.began(use).faulted(use, self._policy, now)
        return not kept.quarantined and self._kept[culprit].quarantined

    def booted(self) -> tuple[str, ...]:
        """A desktop has booted and answers; what is free again by that."""
        back = self.quarantined
        for culprit in back:
            self._kept[culprit] = self._kept[culprit].began(_PROBE).ended(_PROBE, self._policy)
        return back

    def succeeded(self) -> None:
        """An episode on one of the desktops came to an outcome."""
        for culprit, kept in self._kept.items():
            self._kept[culprit] = kept.ended(_USE, self._policy)

    def streak(self, culprit: str) -> int:
        """The faults in a row of "host" or "image"."""
        return self._kept[culprit].streak

    def probe_delay_s(self) -> float:
        """Seconds to wait before the next probe; 0 when nothing is quarantined."""
        waits = (kept.probe_delay_s(self._policy) for kept in self._kept.values() if kept.quarantined)
        return max(waits, default=0.0)


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
