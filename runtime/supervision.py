"""Pure rules of failure: how long to wait, when to restart, when to give up, when not to use a part.

Transitions that are missing on purpose:
- given up -> restarted: a part that could not be kept alive stops the run with its reason.
- quarantined -> free by time: a probe has to look. Nor by a use that began before: it says how the part was.
- probing -> free by any use but the probe, and probing -> probing: one answer is waited for, not several.
- probing -> a longer wait by a fault of another part, which says nothing of this one. The probe is tried again.
- free -> an empty streak but by an outcome: the next fault quarantines what a probe let back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

_K = TypeVar("_K")
_MOST_STEPS = 60  # a float overflows beyond; the longest wait is reached long before


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """`first_s` seconds after the first failure, `factor` times as many after each further one, `longest_s` at most."""

    first_s: float
    longest_s: float
    factor: float = 2.0

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row; 0 after none."""
        if failures < 1:
            return 0.0
        return min(self.longest_s, self.first_s * self.factor ** min(failures - 1, _MOST_STEPS))


def in_the_way(waiting: Mapping[_K, str], address: str, *, most: int, of_address: int) -> _K | None:
    """The connection that goes before another of `address` is taken; None where there is room.

    `waiting` has the address of each, the oldest first: `of_address` of one, and `most` in all, may wait.
    """
    own = [each for each, whose in waiting.items() if whose == address]
    if len(own) >= of_address:
        return own[0]
    return next(iter(waiting)) if len(waiting) >= most else None


IN_A_ROW = 4  # slow starts never fill a window: a part that fails after each is found by this


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how patiently a failed part is started again."""

    max_restarts: int = 5
    window_s: float = 120.0
    first_delay_s: float = 0.2
    factor: float = 2.0
    max_delay_s: float = 10.0

    def delay_s(self, failures: int) -> float:
        """How long to wait after that many failures in a row; 0 after none."""
        return Backoff(first_s=self.first_delay_s, longest_s=self.max_delay_s, factor=self.factor).delay_s(failures)


class Restart(msgspec.Struct, frozen=True):
    """Start again after `delay_s`."""

    delay_s: float


class GiveUp(msgspec.Struct, frozen=True):
    """Stop the system; `reason` says what failed how often."""

    reason: str


class RestartBudget:
    """One part's restarts. A window without failures gives the whole budget and the short delay back."""

    def __init__(self, name: str, policy: RestartPolicy) -> None:
        self._name = name
        self._policy = policy
        self._recent: deque[float] = deque(maxlen=max(1, policy.max_restarts + 1))
        self._short = 0  # lives in a row that were over within a window
        self._up_at: float | None = None

    def up(self, now: float) -> None:
        self._up_at = now

    def on_failure(self, now: float, cause: str, *, curable: bool = True) -> Restart | GiveUp:
        """Decide after a failure at `now`; `curable` is false where a restart can't help (a ConfigError)."""
        policy = self._policy
        lived_s = now - self._up_at if self._up_at is not None else 0.0
        self._up_at = None
        self._short = 0 if lived_s >= policy.window_s else self._short + 1
        if not curable:
            return GiveUp(f"{self._name}: {cause}")
        while self._recent and now - self._recent[0] >= policy.window_s:
            self._recent.popleft()
        if len(self._recent) >= policy.max_restarts:
            return GiveUp(f"{self._name} failed {len(self._recent) + 1} times in {policy.window_s:g} s: {cause}")
        if self._short > IN_A_ROW * policy.max_restarts:
            within = f"each time within {policy.window_s:g} s of coming up"
            return GiveUp(f"{self._name} failed {self._short} times in a row, {within}: {cause}")
        delay = policy.delay_s(len(self._recent) + 1)
        self._recent.append(now)
        return Restart(delay)


class QuarantinePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many faults in a row quarantine a part, and how long the waits between probes are."""

    faults_in_a_row: int = 3
    first_probe_s: float = 2.0
    longest_probe_s: float = 60.0


class QuarantineState(StrEnum):
    """Whether a part may be used. Ledgers hold these values."""

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
