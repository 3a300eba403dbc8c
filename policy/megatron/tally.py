"""Figures of one training step, gathered over its micro-batches and over ranks.

Invariant: means are over tokens, not over micro-batches or ranks, so a figure does not depend on how samples were
packed and dealt out. Every figure is a finite number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch
from torch import Tensor

from policy.megatron.ranks import exchanged, first_of_data


class _Counted(msgspec.Struct):
    """What a rank has counted, as it travels."""

    totals: dict[str, float] = {}
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    peaks: dict[str, float] = {}
    seconds: dict[str, float] = {}


def _add(to: dict[str, float], name: str, value: float) -> None:
    to[name] = to.get(name, 0.0) + value


def _raise(to: dict[str, float], name: str, value: float) -> None:
    to[name] = max(to.get(name, -math.inf), value)


class StepTally:
    """Totals, means, peaks and seconds by name; a name is one kind only."""

    def __init__(self) -> None:
        self._counted = _Counted()

    def total(self, name: str, value: float) -> None:
        """Add `value` to the total `name`."""
        _add(self._counted.totals, name, value)

    def mean(self, name: str, values: Tensor) -> None:
        """Add the elements of `values` to the mean `name`."""
        _add(self._counted.sums, name, float(values.sum()))
        _add(self._counted.counts, name, values.numel())

    def peak(self, name: str, values: Tensor) -> None:
        """Let the largest element of `values`, if it has any, compete for the peak `name`."""
        if values.numel():
            _raise(self._counted.peaks, name, float(values.max()))

    @contextmanager
    def timed(self, name: str, less: str = "") -> Iterator[None]:
        """Add the time inside to the seconds `name`; a GPU's until it is done, for its work is only queued.

        What is added inside to the seconds `less` is left out.
        """
        began, before = time.perf_counter(), self._counted.seconds.get(less, 0.0)
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            within = self._counted.seconds.get(less, 0.0) - before
            _add(self._counted.seconds, name, time.perf_counter() - began - within)

    def reduce(self) -> None:
        """Make this the tally of all ranks; every rank calls it. Seconds become those of the slowest rank.

        Tensor ranks have counted the same tokens, and stages before the last none: one rank speaks for its data rank.
        """
        mine, reduced = self._counted, _Counted()
        content = msgspec.msgpack.encode(mine if first_of_data() else _Counted(seconds=mine.seconds))
        for part in exchanged(content):
            said = msgspec.msgpack.decode(part, type=_Counted)
            for kind in ("totals", "sums", "counts"):
                for name, value in getattr(said, kind).items():
                    _add(getattr(reduced, kind), name, value)
            for kind in ("peaks", "seconds"):
                for name, value in getattr(said, kind).items():
                    _raise(getattr(reduced, kind), name, value)
        self._counted = reduced

    def figures(self) -> dict[str, float]:
        """All by name; means of nothing are left out, and what is not finite reads 0."""
        counted = self._counted
        means = {name: counted.sums[name] / count for name, count in counted.counts.items() if count}
        figures = {**counted.totals, **means, **counted.peaks, **counted.seconds}
        return {name: value if math.isfinite(value) else 0.0 for name, value in figures.items()}
