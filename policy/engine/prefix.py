"""Which pool block holds the keys and values of which tokens.

Invariant: a block is found only by the exact weights that computed it, and the exact tokens from the sequence's start.
The number of blocks never exceeds the pool. An entry is keyed by its parent entry's serial number, so hashes can't
collide. When a parent is evicted, its children can't be found any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class _Entry(NamedTuple):
    serial: int
    weights: int
    block: int


class PrefixIndex:
    """A least-recently-used map from token prefixes to pool blocks of `block` tokens."""

    def __init__(self, blocks: int, block: int) -> None:
        self.block = block
        self._free = list(range(blocks - 1, -1, -1))
        self._blocks = blocks
        self._entries: OrderedDict[tuple[int, tuple[int, ...]], _Entry] = OrderedDict()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries)

    def match(self, weights: int, ids: Sequence[int], limit: int) -> list[int]:
        """Pool blocks that hold the longest known prefix of `ids`, at most `limit` tokens."""
        keys = self._chain(weights, ids[:limit])
        self._touch(keys)
        return [self._entries[key].block for key in keys]

    def insert(self, weights: int, ids: Sequence[int]) -> tuple[int, list[int]]:
        """Enter all whole blocks of `ids`; returns the number of the first new one and the pool blocks to fill."""
        whole = min(len(ids) // self.block, self._blocks)
        keys = self._chain(weights, ids[: whole * self.block])
        self._touch(keys)
        parent = self._entries[keys[-1]].serial if keys else -1 - weights
        first = len(keys)
        new: list[int] = []
        for number in range(first, whole):
            key = (parent, tuple(ids[number * self.block : (number + 1) * self.block]))
            block = self._free.pop() if self._free else self._entries.popitem(last=False)[1].block
            self._serial += 1
            self._entries[key] = _Entry(self._serial, weights, block)
            parent = self._serial
            keys.append(key)
            new.append(block)
        self._touch(keys)
        return first, new

    def drop(self, weights: int) -> None:
        """Forget everything computed by `weights`."""
        for key in [key for key, entry in self._entries.items() if entry.weights == weights]:
            self._free.append(self._entries.pop(key).block)

    def clear(self) -> None:
        """Forget everything."""
        self._free += [entry.block for entry in self._entries.values()]
        self._entries.clear()

    def _chain(self, weights: int, ids: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        parent = -1 - weights
        keys: list[tuple[int, tuple[int, ...]]] = []
        for at in range(0, len(ids) - self.block + 1, self.block):
            key = (parent, tuple(ids[at : at + self.block]))
            entry = self._entries.get(key)
            if entry is None:
                break
            parent = entry.serial
            keys.append(key)
        return keys

    def _touch(self, keys: list[tuple[int, tuple[int, ...]]]) -> None:
        # Deepest first: parents stay younger than children, so eviction takes leaves before what they hang on.
        for key in reversed(keys):
            self._entries.move_to_end(key)
