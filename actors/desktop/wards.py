"""When a host or an image that keeps faulting must rest. Pure.

Invariant: a rest begins after so many faults in a row and ends only with a desktop that boots and answers; what ended
a rest still needs an episode with an outcome before its streak is forgotten, so the next fault sends it to rest again.

Transitions that are missing on purpose:
- resting -> well by an episode that ends well: it began before the rest and tells nothing of new desktops.
- well -> well with a shorter streak by a boot: a host may boot desktops and then lose each of them.
- resting -> well by time: nobody has looked.
"""

from __future__ import annotations

from actors.desktop.faults import Culprit
from actors.desktop.quarantine import Quarantine, QuarantinePolicy

KEPT = (Culprit.HOST, Culprit.IMAGE)


class Wards:
    """The fault streaks of one pool's host and image."""

    def __init__(self, policy: QuarantinePolicy) -> None:
        self._kept = {str(who): Quarantine(policy) for who in KEPT}

    @property
    def resting(self) -> tuple[str, ...]:
        """Who rests: "host", "image"."""
        return tuple(who for who, kept in self._kept.items() if kept.resting)

    def faulted(self, culprit: str) -> bool:
        """Count a fault; whether its culprit rests since now. Culprits that are not kept here count nowhere."""
        kept = self._kept.get(culprit)
        if kept is None:
            return False
        if kept.resting:
            kept.probed(ok=False)
            return False
        return kept.faulted()

    def booted(self) -> tuple[str, ...]:
        """A desktop has booted and answers; who rests no more by that."""
        back = self.resting
        for who in back:
            self._kept[who].probed(ok=True)
        return back

    def succeeded(self) -> None:
        """An episode on one of the desktops came to an outcome."""
        for kept in self._kept.values():
            if not kept.resting:
                kept.succeeded()

    def faults(self, who: str) -> int:
        """The streak of "host" or "image"."""
        return self._kept[who].streak

    def probe_delay_s(self) -> float:
        """Seconds to wait before the next probe; 0 when nobody rests."""
        return max((kept.probe_delay_s() for kept in self._kept.values() if kept.resting), default=0.0)
