"""Whole numbers for generated tasks, in two halves that never meet.

Invariant: a number's own hash decides whether it is of `train` or of `held-out`. No seed of a split draws a number of
the other.
"""

from __future__ import annotations

import hashlib
from random import Random

from apis.tasks.words import HELD_OUT, TRAIN

LEAST, MOST = 10, 999


def split_of(number: int) -> str:
    """Which half `number` belongs to; a fifth of all numbers is held out."""
    drawn = hashlib.blake2b(f"number {number}".encode(), digest_size=2).digest()[0]
    return HELD_OUT if drawn % 5 == 0 else TRAIN


def number(random: Random, split: str, least: int = LEAST, most: int = MOST) -> int:
    """A number of that half from `least` to `most`; there must be one."""
    while True:
        drawn = random.randint(least, most)
        if split_of(drawn) == split:
            return drawn


def numbers(random: Random, split: str, count: int) -> list[int]:
    """`count` different numbers."""
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn[number(random, split)] = None
    return list(drawn)
