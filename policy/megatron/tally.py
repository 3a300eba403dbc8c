"""Figures of one training step, gathered over its micro-batches.

Invariant: means are over tokens, not over micro-batches, so a figure does not depend on how samples were packed. Every
figure is a finite number.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class StepTally:
    """Totals, means and peaks by name; a name is one kind only."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = defaultdict(float)
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._peaks: dict[str, float] = {}

    def total(self, name: str, value: float) -> None:
        """Add `value` to the total `name`."""
        self._totals[name] += value

    def mean(self, name: str, values: Tensor) -> None:
        """Add the elements of `values` to the mean `name`."""
        self._sums[name] += float(values.sum())
        self._counts[name] += values.numel()

    def peak(self, name: str, values: Tensor) -> None:
        """Let the largest element of `values`, if it has any, compete for the peak `name`."""
        if values.numel():
            self._peaks[name] = max(self._peaks.get(name, -math.inf), float(values.max()))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds inside to the total `name`; a GPU's until it is done, for its work is only queued."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self._totals[name] += time.perf_counter() - began

    def figures(self) -> dict[str, float]:
        """All by name; means of nothing are left out, and what is not finite reads 0."""
        means = {name: self._sums[name] / count for name, count in self._counts.items() if count}
        figures = {**self._totals, **means, **self._peaks}
        return {name: value if math.isfinite(value) else 0.0 for name, value in figures.items()}
