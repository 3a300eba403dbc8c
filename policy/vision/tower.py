"""Qwen2.5-VL's tower in plain torch: patches of one picture in, an embedding a token out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from policy.architecture import VisionShape

_BASE, _EPS = 10_000.0, 1e-6


class _Attention(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.heads = shape.num_heads
        self.qkv = nn.Linear(shape.hidden_size, 3 * shape.hidden_size)
        self.proj = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, hidden: Tensor, turns: Tensor, windows: list[tuple[int, int]]) -> Tensor:
        """Hidden [patches, width], each attending within its window: so many windows of so many patches, in order."""
        mixed = self.qkv(hidden).unflatten(-1, (3, self.heads, -1))
        turned = _turned(mixed[:, :2].float(), turns).to(mixed.dtype)
        sizes = [count * length for count, length in windows]
        parts = [x.split(sizes) for x in (turned[:, 0], turned[:, 1], mixed[:, 2])]
        out = []
        for (count, _), *inputs in zip(windows, *parts, strict=True):
            q, k, v = (x.unflatten(0, (count, -1)).transpose(1, 2) for x in inputs)
            out.append(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1).flatten(1))
        seen: Tensor = self.proj(torch.cat(out))
        return seen


def _turned(heads: Tensor, turns: Tensor) -> Tensor:
    """Heads [patches, 2, heads, dim], whose i-th pair is (i, i + dim / 2), by the angles [patches, dim / 2]."""
    cos, sin = turns.cos()[:, None, None], turns.sin()[:, None, None]
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class _Mlp(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        inner: Tensor = self.down_proj(silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return inner


class _Block(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(shape.hidden_size, eps=_EPS)
        self.norm2 = nn.RMSNorm(shape.hidden_size, eps=_EPS)
        self.attn, self.mlp = _Attention(shape), _Mlp(shape)

    def forward(self, hidden: Tensor, turns: Tensor, windows: list[tuple[int, int]]) -> Tensor:
        hidden = hidden + self.attn(self.norm1(hidden), turns, windows)
        return hidden + self.mlp(self.norm2(hidden))


class _Merger(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        merged = shape.hidden_size * shape.spatial_merge_size**2
        self.ln_q = nn.RMSNorm(shape.hidden_size, eps=_EPS)
        self.mlp = nn.Sequential(nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, shape.out_hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        merged: Tensor = self.mlp(self.ln_q(hidden).view(-1, self.mlp[0].in_features))
        return merged


class _PatchEmbed(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        size = (shape.temporal_patch_size, shape.patch_size, shape.patch_size)
        self.proj = nn.Conv3d(3, shape.hidden_size, size, size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        return linear(rows, self.proj.weight.flatten(1))  # a patch is as large as the kernel


class Tower(nn.Module):
    """The tower, its parameters by the folder's names without `visual.`."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.shape = shape
        self.patch_embed = _PatchEmbed(shape)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.depth))
        self.merger = _Merger(shape)

    def forward(self, rows: Tensor, grid: tuple[int, int, int]) -> Tensor:
        """Patches [patches, channels * temporal * patch * patch] of a picture of `grid` -> [tokens, out_hidden_size].

        Patches of a token follow each other, and tokens go row by row, in and out.
        """
        merge = self.shape.spatial_merge_size
        down, across, unit = grid[1] // merge, grid[2] // merge, merge**2
        order, windows = self._windows(down, across)
        order, windows = order.to(rows.device), [(count, length * unit) for count, length in windows]
        hidden = self.patch_embed(rows.to(self.patch_embed.proj.weight.dtype))
        hidden = hidden.unflatten(0, (-1, unit))[order].flatten(0, 1)
        turns = self._angles(down, across).to(rows.device)[order].flatten(0, 1)
        for number, block in enumerate(self.blocks):
            everywhere = number in self.shape.fullatt_block_indexes
            hidden = block(hidden, turns, [(1, len(hidden))] if everywhere else windows)
        merged = self.merger(hidden)
        return merged.new_empty(merged.shape).index_copy(0, order, merged)

    def _windows(self, down: int, across: int) -> tuple[Tensor, list[tuple[int, int]]]:
        """The order of tokens in which those of a window follow each other, and runs of (windows, tokens of each)."""
        side = self.shape.window_size // (self.shape.patch_size * self.shape.spatial_merge_size)
        window = torch.arange(down)[:, None] // side * across + torch.arange(across) // side
        order = window.flatten().argsort(stable=True)
        lengths = window.flatten()[order].unique_consecutive(return_counts=True)[1]
        alike, runs = lengths.unique_consecutive(return_counts=True)
        return order, list(zip(runs.tolist(), alike.tolist(), strict=True))

    def _angles(self, down: int, across: int) -> Tensor:
        """Radians [tokens, patches of one, head_dim / 2]: half of the pairs turn by the row, half by the column."""
        merge, pairs = self.shape.spatial_merge_size, self.shape.hidden_size // self.shape.num_heads // 2
        rates = 1.0 / (_BASE ** (torch.arange(0, pairs, 2, dtype=torch.float32) / pairs))
        places = torch.cartesian_prod(torch.arange(down * merge), torch.arange(across * merge))
        places = places.view(down, merge, across, merge, 2).transpose(1, 2).reshape(down * across, merge * merge, 2)
        return (places[..., None] * rates).flatten(-2)
