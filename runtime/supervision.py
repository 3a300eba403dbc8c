"""When to restart and when to give up.

Invariant: at most `max_restarts` restarts happen within any `window_s`. Lives in a row that each ended within
`window_s` of coming up count up to `IN_A_ROW` times as many. The next failure escalates. Pure: takes `now`.

A transition is missing on purpose: nothing leads back from giving up. A part that could not be kept alive must stop
the run with its reason.
"""

from __future__ import annotations

from collections import deque

import msgspec

from runtime.backoff import Backoff

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
        """The part works since `now`."""
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
