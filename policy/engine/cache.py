"""Where keys and values lie: one row per running sequence, and a pool of shared prefix blocks.

Invariant: all memory is taken once, at start; rows and blocks are copied between, never shared, so evicting a block
can't disturb a running sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from policy.engine.architecture import Architecture


class KeyValueCache:
    """Keys and values of `rows` sequences of at most `length` tokens, and `blocks` pool blocks of `block` tokens.

    `rows_kv`: [layers, rows, length, 2 * kv_heads * head_dim]; `pool`: [layers, blocks, block, same].
    """

    def __init__(
        self, arch: Architecture, *, rows: int, length: int, blocks: int, block: int, device: torch.device
    ) -> None:
        self.rows, self.length, self.block = rows, length, block
        self.rows_kv = torch.zeros(arch.layers, rows, length, arch.kv_width, device=device)
        self.pool = torch.zeros(arch.layers, blocks, block, arch.kv_width, device=device)
        self._flat = [self.rows_kv[layer].view(rows * length, arch.kv_width) for layer in range(arch.layers)]
        self._heads = (2, arch.kv_heads, arch.head_dim)

    def write(self, layer: int, places: Tensor, keys_values: Tensor) -> None:
        """Store `keys_values` [tokens, kv_width] at flat `places` (row * length + position) of one layer."""
        self._flat[layer].index_copy_(0, places, keys_values)

    def views(self, rows: slice, length: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Keys and values per layer, each [rows, kv_heads, length, head_dim], without a copy."""
        part = self.rows_kv[:, rows, :length]
        shaped = part.view(*part.shape[:3], *self._heads).permute(3, 0, 1, 4, 2, 5)
        return shaped[0].unbind(0), shaped[1].unbind(0)

    def load(self, row: int, blocks: list[int]) -> None:
        """Copy pool blocks, in order, to the start of a row."""
        index = torch.tensor(blocks, device=self.pool.device)
        found = self.pool.index_select(1, index)
        self.rows_kv[:, row, : len(blocks) * self.block] = found.flatten(1, 2)

    def store(self, row: int, first: int, blocks: list[int]) -> None:
        """Copy consecutive blocks of a row, from the row's block number `first` on, to pool blocks."""
        start, end = first * self.block, (first + len(blocks)) * self.block
        source = self.rows_kv[:, row, start:end].unflatten(1, (-1, self.block))
        self.pool.index_copy_(1, torch.tensor(blocks, device=self.pool.device), source)

    def wipe(self, row: int) -> None:
        """Zero a row, so that numbers that are not finite don't reach the row's next sequence."""
        self.rows_kv[:, row] = 0.0
