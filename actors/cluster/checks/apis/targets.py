"""Bounds on measured figures, and percentiles of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest measured value that at least `share` of all values do not exceed (nearest rank)."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def median(values: Sequence[float]) -> float | None:
    """The middle value; the lower one of two."""
    return percentile(values, 0.5)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and the bound it must keep."""

    name: str
    measured: float | None
    bound: float
    unit: str
    at_least: bool = False  # else at most

    @property
    def met(self) -> bool:
        """Whether it was measured and keeps the bound."""
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def row(self) -> tuple[str, str, str, str]:
        """Name, figure, bound and verdict as text."""
        found = "-" if self.measured is None else f"{self.measured:.4g} {self.unit}"
        sign = ">=" if self.at_least else "<="
        return self.name, found, f"{sign} {self.bound:g} {self.unit}", "met" if self.met else "MISSED"
