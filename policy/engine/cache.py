"""Where keys and values lie: one row per running sequence, and a pool of shared prefix blocks.

Invariant: all memory is taken once, at start. Rows and blocks are copied between and never shared, so evicting a
block can't disturb a running sequence. One head's keys of a row lie one after the other, because attention of one new
token reads all of them.
"""

from __future__ import annotations

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
        """Copy pool blocks, in order, to the start of a row."""
        index = torch.tensor(blocks, device=self.pool.device)
        found = self.pool.index_select(1, index).permute(0, 2, 3, 1, 4, 5)
        self.rows_kv[:, :, row, :, : len(blocks) * self.block] = found.flatten(3, 4)

    def store(self, row: int, first: int, blocks: list[int]) -> None:
        """Copy consecutive blocks of a row, from the row's block number `first` on, to pool blocks."""
        start, end = first * self.block, (first + len(blocks)) * self.block
        source = self.rows_kv[:, :, row, :, start:end].unflatten(3, (-1, self.block)).permute(0, 3, 1, 2, 4, 5)
        self.pool.index_copy_(1, torch.tensor(blocks, device=self.pool.device), source)

    def wipe(self, row: int) -> None:
        """Zero a row, so that numbers that are not finite don't reach the row's next sequence."""
        self.rows_kv[:, :, row] = 0.0
