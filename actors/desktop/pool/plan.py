"""How many desktops to boot, and when.

Invariant: at most `PoolConfig.boots_at_once` boots are under way. Ready and booting desktops never outnumber the wanted
spares plus the waiting callers, plus one while a probe is wanted. After a failed boot nothing starts before its
back-off has passed. Only a successful boot resets the back-off.
"""

from __future__ import annotations

from actors.desktop.config import PoolConfig
from actors.desktop.pool.boots import BOOTS_LEAST
from runtime.supervision import Backoff


class PoolPlan:
    """Counts of one pool; `now` is monotonic seconds."""

    def __init__(self, config: PoolConfig) -> None:
        self._config = config
        self._boots = config.boots_at_once or BOOTS_LEAST
        self._backoff = Backoff(first_s=config.first_backoff_s, longest_s=config.longest_backoff_s)
        self.ready = 0
        self.booting = 0
        self.waiting = 0
        self.probing = False  # one boot is wanted to learn whether desktops can be had, whatever is ready
        self._failures = 0
        self._not_before = float("-inf")

    def to_start(self, now: float) -> int:
        """How many boots to start now."""
        if now < self._not_before:
            return 0
        lacking = self._config.warm_pool + self.waiting - self.ready - self.booting
        if self.probing and not self.booting:
            lacking = max(1, lacking)
        # After a failure one boot tries the ground.
        room = (1 if self._failures or self.probing else self._boots) - self.booting
        return max(0, min(lacking, room))

    def probe_after(self, now: float, delay_s: float) -> None:
        """Want one boot, not before `delay_s` have passed, and no others until it has succeeded."""
        self.probing = True
        self._not_before = max(self._not_before, now + delay_s)

    def pause_s(self, now: float) -> float:
        """Seconds until the back-off has passed."""
        return max(0.0, self._not_before - now)

    def started(self) -> None:
        """A boot was started."""
        self.booting += 1

    def booted(self) -> None:
        """A boot ended well."""
        self.booting -= 1
        self.ready += 1
        self.probing = False
        self._failures = 0
        self._not_before = float("-inf")

    def failed(self, now: float) -> float:
        """A boot failed; the back-off in seconds, doubled with each failure in a row."""
        self.booting -= 1
        self._failures += 1
        delay_s = self._backoff.delay_s(self._failures)
        self._not_before = max(self._not_before, now + delay_s)
        return delay_s

    def taken(self) -> None:
        """A ready desktop was handed out, or found dead."""
        self.ready -= 1
