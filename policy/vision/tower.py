"""Towers in plain torch, Qwen2.5-VL's and GLM-4.1V's: patches of one picture in, an embedding a token out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, gelu, grid_sample, linear, scaled_dot_product_attention, silu

from policy.architecture import GlmVisionShape, VisionShape

_BASE, _EPS = 10_000.0, 1e-6


class _Attention(nn.Module):
    def __init__(self, shape: VisionShape, *, bias: bool) -> None:
        super().__init__()
        self.heads = shape.num_heads
        self.qkv = nn.Linear(shape.hidden_size, 3 * shape.hidden_size, bias)
        self.proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias)

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
    def __init__(self, width: int, inner: int, *, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias)
        self.up_proj = nn.Linear(width, inner, bias)
        self.down_proj = nn.Linear(inner, width, bias)

    def forward(self, hidden: Tensor) -> Tensor:
        inner: Tensor = self.down_proj(silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return inner


class _Block(nn.Module):
    def __init__(self, shape: VisionShape, inner: int, eps: float, *, bias: bool) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(shape.hidden_size, eps=eps)
        self.norm2 = nn.RMSNorm(shape.hidden_size, eps=eps)
        self.attn, self.mlp = _Attention(shape, bias=bias), _Mlp(shape.hidden_size, inner, bias=bias)

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
    def __init__(self, shape: VisionShape, *, bias: bool) -> None:
        super().__init__()
        size = (shape.temporal_patch_size, shape.patch_size, shape.patch_size)
        self.proj = nn.Conv3d(3, shape.hidden_size, size, size, bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        weight = self.proj.weight.flatten(1)  # a patch is as large as the kernel
        return linear(rows.to(weight.dtype), weight, self.proj.bias)


def places(shape: VisionShape, down: int, across: int) -> Tensor:
    """Row and column [tokens, patches of one, 2] of each patch of a picture of `down` x `across` tokens."""
    merge = shape.spatial_merge_size
    flat = torch.cartesian_prod(torch.arange(down * merge), torch.arange(across * merge))
    return flat.view(down, merge, across, merge, 2).transpose(1, 2).reshape(down * across, merge * merge, 2)


def angles(shape: VisionShape, at: Tensor) -> Tensor:
    """Radians [..., head_dim / 2] of `places`: half of the pairs turn by the row, half by the column."""
    pairs = shape.hidden_size // shape.num_heads // 2
    rates = 1.0 / (_BASE ** (torch.arange(0, pairs, 2, dtype=torch.float32) / pairs))
    return (at[..., None] * rates).flatten(-2)


class _GlmMerger(_Mlp):
    def __init__(self, shape: GlmVisionShape) -> None:
        super().__init__(shape.out_hidden_size, shape.intermediate_size, bias=False)
        self.proj = nn.Linear(shape.out_hidden_size, shape.out_hidden_size, bias=False)
        self.post_projection_norm = nn.LayerNorm(shape.out_hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(gelu(self.post_projection_norm(self.proj(hidden))))


class _Positions(nn.Module):
    def __init__(self, shape: GlmVisionShape) -> None:
        super().__init__()
        self.side = shape.image_size // shape.patch_size
        self.position_embedding = nn.Embedding(self.side**2, shape.hidden_size)

    def forward(self, at: Tensor, grid: tuple[int, int, int]) -> Tensor:
        """Embeddings [patches, width] of rows and columns [patches, 2]: the learned square stretched to the picture."""
        square = self.position_embedding.weight.float().view(self.side, self.side, -1).permute(2, 0, 1)[None]
        within = (at + 0.5) / torch.tensor(grid[1:], device=at.device) * 2 - 1
        points = within.flip(-1)[None, :, None]
        stretched = grid_sample(square, points, mode="bicubic", align_corners=False, padding_mode="border")
        return stretched[0, :, :, 0].t()


class GlmTower(nn.Module):
    """GLM-4.1V's, like `Tower`."""

    def __init__(self, shape: GlmVisionShape) -> None:
        super().__init__()
        self.shape, eps = shape, shape.rms_norm_eps
        width, out, merge = shape.hidden_size, shape.out_hidden_size, shape.spatial_merge_size
        self.patch_embed = _PatchEmbed(shape, bias=True)
        self.embeddings = _Positions(shape)
        self.blocks = nn.ModuleList(_Block(shape, out, eps, bias=False) for _ in range(shape.depth))
        self.post_conv_layernorm, self.post_layernorm = (nn.RMSNorm(width, eps=eps) for _ in range(2))
        self.downsample = nn.Conv2d(width, out, merge, merge)
        self.merger = _GlmMerger(shape)

    def forward(self, rows: Tensor, grid: tuple[int, int, int]) -> Tensor:
        merge = self.shape.spatial_merge_size
        at = places(self.shape, grid[1] // merge, grid[2] // merge).flatten(0, 1)
        turns = angles(self.shape, at).to(rows.device)
        hidden = self.post_conv_layernorm(self.patch_embed(rows))
        hidden = hidden + self.embeddings(at.to(rows.device), grid).to(hidden.dtype)
        for block in self.blocks:
            hidden = block(hidden, turns, [(1, len(hidden))])
        squares = self.post_layernorm(hidden).view(-1, merge, merge, hidden.shape[-1]).permute(0, 3, 1, 2)
        merged = conv2d(squares, self.downsample.weight, self.downsample.bias).flatten(1)
        seen: Tensor = self.merger(merged)
        return seen


class Tower(nn.Module):
    """Qwen2.5-VL's, its parameters by the folder's names without `visual.`."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.shape = shape
        self.patch_embed = _PatchEmbed(shape, bias=False)
        self.blocks = nn.ModuleList(_Block(shape, shape.intermediate_size, _EPS, bias=True) for _ in range(shape.depth))
        self.merger = _Merger(shape)

    def forward(self, rows: Tensor, grid: tuple[int, int, int]) -> Tensor:
        """Patches [patches, channels * temporal * patch * patch] of a picture of `grid` -> [tokens, out_hidden_size].

        Patches of a token follow each other, and tokens go row by row, in and out.
        """
        merge = self.shape.spatial_merge_size
        down, across, unit = grid[1] // merge, grid[2] // merge, merge**2
        order, windows = self._windows(down, across)
        order, windows = order.to(rows.device), [(count, length * unit) for count, length in windows]
        hidden = self.patch_embed(rows)
        hidden = hidden.unflatten(0, (-1, unit))[order].flatten(0, 1)
        turns = angles(self.shape, places(self.shape, down, across)).to(rows.device)[order].flatten(0, 1)
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
