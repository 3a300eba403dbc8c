"""How far a mean over seeds and instances may be off, when both were drawn and another draw would differ in both.

Every seed plays every instance. So a seed's luck is in all of its cells, and an instance's in all of its own. Cells are
d[s][i] = mean + seed[s] + instance[i] + rest[s][i]. The mean's variance comes from the analysis of variance of that
table. It is estimated by (MS_seeds + MS_instances - MS_rest) / cells, no component below 0. Source: S. R. Searle, G.
Casella, C. E. McCulloch, Variance Components, 1992, chapter 4. Degrees of freedom are by F. E. Satterthwaite,
Biometrics Bulletin 2, 1946. With three seeds this is Student's t with two degrees of freedom where seeds alone vary.

Invariant: pure. Parts are never negative, and the half-width is 0 only where all cells are alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

_PARTS = 200  # of Simpson's rule, an even number


class VarianceParts(msgspec.Struct, frozen=True, kw_only=True):
    """Standard errors of a mean by what varies, as parts of 1; their squares add up to its variance."""

    seeds: float
    instances: float
    rest: float  # a seed's luck with an instance, and an episode's
    freedom: float  # degrees of freedom of all together
    half: float  # half of the 95 % interval's width


def spread(cells: Sequence[Sequence[float]]) -> VarianceParts:
    """Of a table with a row per seed and a column per instance, two of each at least. Raises ValueError for fewer."""
    seeds, instances = len(cells), min(map(len, cells), default=0)
    if min(seeds, instances) < 2 or any(len(row) != instances for row in cells):
        raise ValueError(f"a table of {seeds} seeds and {instances} instances has nothing to vary")
    rows, columns = [fmean(row) for row in cells], [fmean(column) for column in zip(*cells, strict=True)]
    mean, size = fmean(rows), seeds * instances
    of_seeds = instances * sum((row - mean) ** 2 for row in rows) / (seeds - 1)
    of_instances = seeds * sum((column - mean) ** 2 for column in columns) / (instances - 1)
    left = ((x - row - column + mean) ** 2 for row, of in zip(rows, cells, strict=True)
            for x, column in zip(of, columns, strict=True))  # fmt: skip
    of_rest = sum(left) / ((seeds - 1) * (instances - 1))
    more_seeds, more_instances = max(0.0, of_seeds - of_rest), max(0.0, of_instances - of_rest)
    whole = more_seeds + more_instances + of_rest
    if whole <= 1e-18:
        return VarianceParts(seeds=0.0, instances=0.0, rest=0.0, freedom=float(seeds - 1), half=0.0)
    parts = [(of_seeds, seeds - 1)] * (more_seeds > 0) + [(of_instances, instances - 1)] * (more_instances > 0)
    if len(parts) != 1:  # where one component alone is above 0, the sum is that mean square
        parts.append((of_rest, (seeds - 1) * (instances - 1)))
    freedom = max(float(seeds - 1), whole**2 / sum(square**2 / free for square, free in parts))
    part = [math.sqrt(of / size) for of in (more_seeds, more_instances, of_rest)]
    half = quantile95(freedom) * math.sqrt(whole / size)
    return VarianceParts(seeds=part[0], instances=part[1], rest=part[2], freedom=freedom, half=half)


@functools.lru_cache(256)
def quantile95(freedom: float) -> float:
    """The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom, 1 or more, whole or not.

    With t = sqrt(freedom) tan(a) the density is that of cos(a) ** (freedom - 1), which is integrated by Simpson's rule.
    """
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    low, high = 0.0, math.pi / 2
    while high - low > 1e-9:
        middle = (low + high) / 2
        at = [math.cos(middle * n / _PARTS) ** (freedom - 1) for n in range(_PARTS + 1)]
        inside = middle / (3 * _PARTS) * (at[0] + at[-1] + 4 * sum(at[1:-1:2]) + 2 * sum(at[2:-1:2]))
        low, high = (middle, high) if inside < 0.95 * whole else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)
