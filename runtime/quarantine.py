"""When a part that keeps failing (a task, a seat, a host, an image) is not used. Pure.

Invariant: quarantine begins after `faults_in_a_row` faults of the part's own, with no outcome between them. While it
lasts the part is used by one probe at a time. Only a probe that comes to an outcome, good or bad, ends it.

Transitions that are missing on purpose:
- quarantined -> free by time: a probe has to look.
- quarantined -> free by a use that began before: it says how the part was, not how it is.
- probing -> free by any use but the probe, and probing -> probing: one answer is waited for, not several.
- probing -> a longer wait by a fault of another part: it says nothing of this part. The probe is tried again.
- free -> an empty streak but by an outcome: what a probe let back is quarantined again by its next fault.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from runtime.backoff import Backoff


class QuarantinePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many faults in a row quarantine a part, and how long the waits between probes are."""

    faults_in_a_row: int = 3
    first_probe_s: float = 2.0
    longest_probe_s: float = 60.0


class QuarantineState(StrEnum):
    """Where a part stands. Ledgers hold these values."""

    FREE = "well"
    QUARANTINED = "resting"
    PROBING = "probing"


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one part. A use is a number of the caller's choice; `probe` is the use that probes.

    Times are seconds of one monotonic clock.
    """

    state: QuarantineState = QuarantineState.FREE
    streak: int = 0
    failed_probes: int = 0
    probe_at: float = 0.0
    probe: int = 0

    @property
    def quarantined(self) -> bool:
        """Whether only a probe may use it."""
        return self.state is not QuarantineState.FREE

    def usable(self, now: float) -> bool:
        """Whether a use may begin: any while it is free, else a probe that is due."""
        return not self.quarantined or (self.state is QuarantineState.QUARANTINED and now >= self.probe_at)

    def began(self, use: int) -> Quarantine:
        """A use began; on a quarantined part that is the probe."""
        if self.state is not QuarantineState.QUARANTINED:
            return self
        return msgspec.structs.replace(self, state=QuarantineState.PROBING, probe=use)

    def faulted(self, use: int, policy: QuarantinePolicy, now: float, *, own: bool = True) -> Quarantine:
        """The use failed at `now`; `own` says that this part is the culprit."""
        if self.state is QuarantineState.PROBING and use == self.probe:
            if not own:
                return msgspec.structs.replace(self, state=QuarantineState.QUARANTINED, probe_at=now, probe=0)
            return self._begin(policy, now, self.failed_probes + 1)
        if self.quarantined or not own:
            return self
        counted = msgspec.structs.replace(self, streak=self.streak + 1)
        return counted._begin(policy, now, 0) if counted.streak >= policy.faults_in_a_row else counted

    def ended(self, use: int, policy: QuarantinePolicy) -> Quarantine:
        """The use came to an outcome."""
        if not self.quarantined:
            return Quarantine()
        if self.state is QuarantineState.PROBING and use == self.probe:
            return Quarantine(streak=policy.faults_in_a_row - 1)
        return self

    def probe_delay_s(self, policy: QuarantinePolicy) -> float:
        """Seconds from a fault to the next probe; they double with each failed probe."""
        backoff = Backoff(first_s=policy.first_probe_s, longest_s=policy.longest_probe_s)
        return backoff.delay_s(self.failed_probes + 1)

    def _begin(self, policy: QuarantinePolicy, now: float, failed_probes: int) -> Quarantine:
        begun = Quarantine(state=QuarantineState.QUARANTINED, streak=self.streak, failed_probes=failed_probes)
        return msgspec.structs.replace(begun, probe_at=now + begun.probe_delay_s(policy))
