"""When something that keeps faulting (a seat, a host, an image) must rest.

Invariant: only a real success clears a failure streak, and only a probe ends a rest: nothing comes back because time
passed. There is deliberately no transition from resting to working but `probed(ok=True)`, and none from there to an
empty streak but `succeeded`: what a probe let back rests again at its next fault.
"""

from __future__ import annotations

import msgspec


class QuarantinePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many faults in a row send to rest, and how long the waits between probes are."""

    faults_in_a_row: int = 3
    first_probe_s: float = 2.0
    longest_probe_s: float = 60.0


class Quarantine:
    """The fault streak of one seat, host or image."""

    def __init__(self, policy: QuarantinePolicy) -> None:
        self._policy = policy
        self._streak = 0
        self._failed_probes = 0
        self.resting = False

    @property
    def streak(self) -> int:
        """Faults in a row."""
        return self._streak

    def faulted(self) -> bool:
        """Count a fault; returns whether it rests now."""
        self._streak += 1
        if self._streak >= self._policy.faults_in_a_row:
            self.resting = True
        return self.resting

    def succeeded(self) -> None:
        """An episode came through with an outcome."""
        self._streak = 0

    def probe_delay_s(self) -> float:
        """Seconds to wait before the next probe; doubles with each failed one."""
        delay = self._policy.first_probe_s * 2.0 ** min(self._failed_probes, 30)
        return min(self._policy.longest_probe_s, delay)

    def probed(self, ok: bool) -> None:
        """A probe ended. What is let back still needs a success to clear its streak."""
        if ok:
            self.resting = False
            self._failed_probes = 0
            self._streak = self._policy.faults_in_a_row - 1
        else:
            self._failed_probes += 1
