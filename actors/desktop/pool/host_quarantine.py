"""The quarantine of a pool's host and image. Pure.

Invariant: the quarantine begins after so many faults in a row and ends only with a desktop that boots and answers. The
streak is forgotten only after an episode with an outcome, so the next fault quarantines again.

Transitions that are missing on purpose, beside the missing ones of `runtime.quarantine`:
- quarantined -> free by an episode that ends well: it began before and tells nothing of new desktops.
- free -> free with a shorter streak by a boot: a host may boot desktops and then lose each of them.
"""

from __future__ import annotations

from actors.desktop.faults import Culprit
from runtime.quarantine import Quarantine, QuarantinePolicy

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
