"""Where keys and values lie: one row per running sequence, a pool of shared prefix blocks, and the index of these.

Invariant: all memory is taken once, at start. Rows and blocks are copied between and never shared, so evicting a
block can't disturb a running sequence. A block is given only for the exact weights that computed it, and the exact
tokens from the sequence's start. An entry is keyed by its parent entry's serial number, so hashes can't collide, and
the children of an evicted parent can't be reached any more.

One head's keys of a row lie one after the other, because attention of one new token reads all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from policy.architecture import Architecture


class KeyValueCache:
    """Keys and values of `rows` sequences of at most `length` tokens, and `blocks` pool blocks of `block` tokens.

    `rows_kv`: [layers, 2, rows, kv_heads, length, head_dim]; `pool`: [layers, blocks, 2, kv_heads, block, head_dim].
    """

    def __init__(
        self,
        arch: Architecture,
        *,
        rows: int,
        length: int,
        blocks: int,
        block: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.rows, self.length, self.block, self.heads = rows, length, block, arch.kv_heads
        layers, heads, dim = arch.layers, arch.kv_heads, arch.head_dim
        self.rows_kv = torch.zeros(layers, 2, rows, heads, length, dim, device=device, dtype=dtype)
        self.pool = torch.zeros(layers, blocks, 2, heads, block, dim, device=device, dtype=dtype)
        self._flat = [self.rows_kv[layer].view(-1, arch.head_dim) for layer in range(arch.layers)]
        # From a token's place in the first head's keys to its places in all heads' keys, then values.
        self._steps = torch.arange(2, device=device)[:, None] * (rows * arch.kv_heads * length)
        self._steps = (self._steps + torch.arange(arch.kv_heads, device=device) * length).flatten()

    def places(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Where `write` stores tokens at `positions` [tokens] of `rows` [tokens]."""
        return ((rows * self.heads * self.length + positions)[:, None] + self._steps).flatten()

    def write(self, layer: int, places: Tensor, keys_values: Tensor) -> None:
        """Store `keys_values` [tokens, 2 * kv_heads * head_dim] of one layer."""
        flat = self._flat[layer]
        flat.index_copy_(0, places, keys_values.reshape(len(places), flat.shape[1]))

    def views(self, rows: slice, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Keys and values per layer, each [rows, kv_heads, length, head_dim], without a copy."""
        part = self.rows_kv[:, :, rows, :, :length]
        return part[:, 0].unbind(0), part[:, 1].unbind(0)

    def heads_of(self, rows: int, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Those of the first `rows` rows, each [rows * kv_heads, length, head_dim], without a copy."""
        part = self.rows_kv.flatten(2, 3)[:, :, : rows * self.heads, :length]
        return part[:, 0].unbind(0), part[:, 1].unbind(0)

    def load(self, row: int, blocks: list[int]) -> None:
        index = torch.tensor(blocks, device=self.pool.device)
        copied = self.pool.index_select(1, index).permute(0, 2, 3, 1, 4, 5)
        self.rows_kv[:, :, row, :, : len(blocks) * self.block] = copied.flatten(3, 4)

    def store(self, row: int, first: int, blocks: list[int]) -> None:
        """Copy consecutive blocks of a row, from the row's block number `first` on, to pool blocks."""
        start, end = first * self.block, (first + len(blocks)) * self.block
        source = self.rows_kv[:, :, row, :, start:end].unflatten(3, (-1, self.block)).permute(0, 3, 1, 2, 4, 5)
        self.pool.index_copy_(1, torch.tensor(blocks, device=self.pool.device), source)

    def wipe(self, row: int) -> None:
        """Zero a row, so that numbers that are not finite don't reach the row's next sequence."""
        self.rows_kv[:, :, row] = 0.0


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
        for key in [key for key, entry in self._entries.items() if entry.weights == weights]:
            self._free.append(self._entries.pop(key).block)

    def clear(self) -> None:
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
