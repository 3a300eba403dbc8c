"""How far a mean over seeds and instances may be off, when both were drawn and another draw would differ in both.

Every seed plays every instance, so a seed's luck is in all of its cells and an instance's in all of its own: cells are
d[s][i] = mean + seed[s] + instance[i] + rest[s][i]. Of the analysis of variance of that table (S. R. Searle, G.
Casella, C. E. McCulloch, Variance Components, 1992, chapter 4) the mean's variance is estimated by
(MS_seeds + MS_instances - MS_rest) / cells, no component below 0, with degrees of freedom by F. E. Satterthwaite,
Biometrics Bulletin 2, 1946. With three seeds that is Student's t with two of them where seeds alone vary.

Invariant: pure; parts are never negative, and the half-width is 0 only where all cells are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Standard errors of a mean by what varies, as parts of 1; their squares add up to its variance."""

    seeds: float
    instances: float
    rest: float  # a seed's luck with an instance, and an episode's
    freedom: float  # degrees of freedom of all together
    half: float  # half of the 95 % interval's width


def spread(cells: Sequence[Sequence[float]]) -> Spread:
    """Of a table with a row per seed and a column per instance, two of each at least. Raises ValueError for fewer."""
    table = np.asarray(cells, dtype=float)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ValueError(f"a table of {table.shape} cells has nothing to vary")
    seeds, instances = table.shape
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    of_seeds = instances * float(((rows - mean) ** 2).sum()) / (seeds - 1)
    of_instances = seeds * float(((columns - mean) ** 2).sum()) / (instances - 1)
    left = table - rows[:, None] - columns[None, :] + mean
    of_rest = float((left**2).sum()) / ((seeds - 1) * (instances - 1))
    more_seeds, more_instances = max(0.0, of_seeds - of_rest), max(0.0, of_instances - of_rest)
    whole = more_seeds + more_instances + of_rest
    if whole <= 1e-18:
        return Spread(seeds=0.0, instances=0.0, rest=0.0, freedom=float(seeds - 1), half=0.0)
    parts = [(of_seeds, seeds - 1)] * (more_seeds > 0) + [(of_instances, instances - 1)] * (more_instances > 0)
    if len(parts) != 1:  # where one component alone is above 0, the sum is that mean square
        parts.append((of_rest, (seeds - 1) * (instances - 1)))
    freedom = max(float(seeds - 1), whole**2 / sum(square**2 / free for square, free in parts))
    part = [math.sqrt(of / table.size) for of in (more_seeds, more_instances, of_rest)]
    half = quantile95(freedom) * math.sqrt(whole / table.size)
    return Spread(seeds=part[0], instances=part[1], rest=part[2], freedom=freedom, half=half)


def quantile95(freedom: float) -> float:
    """The two-sided 95 % quantile of Student's t with `freedom` degrees of freedom, 1 or more, whole or not.

    With t = sqrt(freedom) tan(a) the density is that of cos(a) ** (freedom - 1), which is integrated by Simpson's rule.
    """
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi) / 2
    low, high = 0.0, math.pi / 2
    while high - low > 1e-10:
        middle = (low + high) / 2
        at = np.cos(np.linspace(0.0, middle, 401)) ** (freedom - 1)
        inside = middle / 1200 * float(at[0] + at[-1] + 4 * at[1:-1:2].sum() + 2 * at[2:-1:2].sum())
        low, high = (middle, high) if inside < 0.95 * whole else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)
