"""Runs that differ in nothing but their seed, and what they say together. Pure.

Invariant: a mean is taken only where every seed has a value, so that a run which is behind or was killed bends no
curve; the band is the range of the seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Series = Mapping[int, float]  # optimizer step -> value


class Band(msgspec.Struct, frozen=True):
    """Mean of the seeds with the lowest and the highest one, by step."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int


def band(series: Sequence[Series]) -> Band:
    """The band of several seeds' curves over the steps that all of them have; those without a value at all are none."""
    told = [one for one in series if one]
    if not told:
        return Band([], [], [], [], 0)
    steps = sorted(set.intersection(*(set(one) for one in told)))
    columns = [[one[step] for one in told] for step in steps]
    # A mean of equal numbers may round to outside of them.
    means = [min(max(sum(values) / len(values), min(values)), max(values)) for values in columns]
    return Band(steps, means, [min(v) for v in columns], [max(v) for v in columns], len(told))


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Trailing mean over at most `window` values."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def key(deploy: Mapping[str, Any]) -> str:
    """What runs of one deploy file share whatever their seed: a digest of all but seed and recording."""
    plain = msgspec.json.decode(msgspec.json.encode(deploy))
    plain.get("run", {}).pop("seed", None)
    plain.get("demos", {}).pop("source", None)
    return hashlib.blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=8).hexdigest()
