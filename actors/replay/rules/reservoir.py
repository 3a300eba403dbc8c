"""Uniform choices that come out the same after any restart.

Invariant: every choice is a function of the run's seed and of counts that the ledger stores. No generator's state lives
in memory. After n offers each of them is in a reservoir of size k with probability k / n (algorithm R).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from runtime.settings import stable_seed

ItemT = TypeVar("ItemT")


def place(seen: int, size: int, seed: int) -> int | None:
    """Where the next offer goes after `seen` earlier ones: a place in 0..size-1 (maybe evicting), or None.

    Vitter's algorithm R; `seed` must differ between offers.
    """
    if seen < size:
        return seen
    draw = random.Random(seed).randrange(seen + 1)  # noqa: S311 - repeatable, nothing secret
    return draw if draw < size else None


def choose(items: Sequence[ItemT], count: int, seed: int) -> list[ItemT]:
    """`count` of `items` at random without replacement, in their order; all when there are no more."""
    if len(items) <= count:
        return list(items)
    picks = sorted(random.Random(seed).sample(range(len(items)), count))  # noqa: S311 - as above
    return [items[pick] for pick in picks]


@lru_cache(maxsize=4)
def shuffled(size: int, seed: int) -> tuple[int, ...]:
    """A permutation of range(size). Kept for the next minibatches of the same epoch."""
    order = list(range(size))
    random.Random(seed).shuffle(order)  # noqa: S311 - as above
    return tuple(order)


def minibatch(size: int, batch: int, per_batch: int, seed: int) -> list[int]:
    """Indices of minibatch number `batch` over endless shuffled epochs of `size` items.

    Every item comes once per epoch; a minibatch may span two epochs. Raises ValueError when there are no items.
    """
    if size < 1:
        raise ValueError("no items to draw minibatches from")
    first = batch * per_batch
    places = (divmod(position, size) for position in range(first, first + per_batch))
    return [shuffled(size, stable_seed(seed, epoch))[place_in_epoch] for epoch, place_in_epoch in places]


def nth_of_epochs(items: Sequence[ItemT], number: int, seed: int) -> ItemT:
    """Item `number` of endless shuffled epochs over `items`. Raises ValueError when there are none."""
    return items[minibatch(len(items), number, 1, seed)[0]]
