"""Waits that grow with each failure in a row. Pure.

Invariant: a wait is finite, however many failures there were, and no wait is shorter than the one before it.
"""

from __future__ import annotations

import msgspec

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
