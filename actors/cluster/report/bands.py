"""Runs that differ in nothing but their seed, and what they say together. Pure.

Invariant: a mean is taken only where every seed has a value, so a run that is behind or was killed bends no curve. The
band is the range of the seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.cluster.config.schema import Deploy

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


# What a run is asked to reach, or how long it may take, changes nothing of what it learns; nor where its seed's
# demonstrations come from, or how soon a round is over.
_ASIDE = (
    ("run", ("seed", "require", "limit_s", "log_level")),
    ("demos", ("source",)),
    ("evaluation", ("rollout_share",)),
)


def key(deploy: Mapping[str, Any]) -> str:
    """What runs of one deploy file share whatever their seed: a digest of what it says beside the defaults.

    A key that a later build adds, at its default, leaves the digest of older runs as it was.
    """
    plain, usual = (msgspec.json.decode(msgspec.json.encode(one)) for one in (deploy, Deploy()))
    for part, names in _ASIDE:
        for name in names:
            plain.get(part, {}).pop(name, None)
    said = _beside(plain, usual)
    return hashlib.blake2b(msgspec.json.encode(said, order="sorted"), digest_size=8).hexdigest()


def _beside(said: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What of `said` is not as `default` has it."""
    found: dict[str, Any] = {}
    for name, value in said.items():
        usual = default.get(name)
        if isinstance(value, dict) and isinstance(usual, dict):
            if inner := _beside(value, usual):
                found[name] = inner
        elif name not in default or value != usual:
            found[name] = value
    return found
