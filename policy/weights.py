"""Hugging Face weights to Megatron's layout and back, bit for bit, for Qwen2 and Qwen3 style decoders.

Megatron's layout: `linear_qkv` rows are, per group of queries, [its query heads | key | value]. `linear_fc1` is [gate;
up]. Under tensor parallelism each rank holds [its part of gate; its part of up].

Invariant: `to_hf(from_hf(x)) == x` exactly, at any tensor-parallel size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor


class Shape(Protocol):
    """What of a decoder's shape the mapping needs."""

    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


# Parameter outside the layers, or suffix inside `decoder.layers.N.` -> HF name(s) and the dimension split over ranks.
OUTSIDE: dict[str, tuple[str, int | None]] = {
    "embedding.word_embeddings.weight": ("model.embed_tokens.weight", 0),
    "output_layer.weight": ("lm_head.weight", 0),
    "decoder.final_layernorm.weight": ("model.norm.weight", None),
}
INSIDE: dict[str, tuple[tuple[str, ...], int | None]] = {
    "input_layernorm.weight": (("input_layernorm.weight",), None),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm.weight",), None),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm.weight",), None),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm.weight",), None),
    "self_attention.linear_proj.weight": (("self_attn.o_proj.weight",), 1),
    "self_attention.linear_qkv.weight": (tuple(f"self_attn.{x}_proj.weight" for x in "qkv"), 0),
    "self_attention.linear_qkv.bias": (tuple(f"self_attn.{x}_proj.bias" for x in "qkv"), 0),
    "mlp.linear_fc1.weight": (("mlp.gate_proj.weight", "mlp.up_proj.weight"), 0),
    "mlp.linear_fc2.weight": (("mlp.down_proj.weight",), 1),
}


def hf_names(name: str) -> tuple[tuple[str, ...], int | None]:
    """The HF tensors that Megatron's parameter `name` holds, and its split dimension. Raises KeyError if unknown."""
    if name in OUTSIDE:
        hf, split = OUTSIDE[name]
        return (hf,), split
    _, _, layer, suffix = name.split(".", 3)
    names, split = INSIDE[suffix]
    return tuple(f"model.layers.{layer}.{hf}" for hf in names), split


def strips(name: str) -> int:
    """How many whole tensors a rank's shard of parameter `name` holds a strip of, end to end: gate and up are two."""
    return 2 if "linear_fc1" in name else 1


def from_hf(name: str, hf: dict[str, Tensor], shape: Shape, *, tp_size: int = 1, tp_rank: int = 0) -> Tensor:
    """The value of parameter `name` on tensor-parallel rank `tp_rank`. Raises KeyError for a missing tensor."""
    names, split = hf_names(name)
    parts = [hf[x] for x in names]
    if "linear_qkv" in name:
        grouped = [part.reshape(shape.kv_heads, -1, *part.shape[1:]) for part in parts]
        parts = [torch.cat(grouped, 1).reshape(-1, *parts[0].shape[1:])]
    if split is None:
        return parts[0]
    return torch.cat([part.chunk(tp_size, split)[tp_rank] for part in parts])


def to_hf(
    parameters: Iterable[tuple[str, Tensor]],
    shape: Shape,
    gather: Callable[[Tensor], list[Tensor]] = lambda x: [x],
) -> dict[str, Tensor]:
    """Full, contiguous HF tensors of Megatron's named parameters.

    `gather` returns a tensor's parts of all tensor-parallel ranks in order; every rank must call this.
    """
    out: dict[str, Tensor] = {}
    for name, value in parameters:
        names, split = hf_names(name)
        parts = [value.detach()] if split is None else gather(value.detach())
        if "linear_fc1" in name:
            halves = [part.chunk(2) for part in parts]
            tensors: list[Tensor] = [torch.cat([half[i] for half in halves]) for i in (0, 1)]
        elif "linear_qkv" in name:
            whole = torch.cat(parts)
            rows = whole.reshape(shape.kv_heads, -1, *whole.shape[1:])
            widths = [shape.heads // shape.kv_heads * shape.head_dim, shape.head_dim, shape.head_dim]
            tensors = [x.reshape(-1, *whole.shape[1:]) for x in rows.split(widths, 1)]
        else:
            tensors = [parts[0] if split is None else torch.cat(parts, split)]
        out.update(zip(names, (tensor.contiguous() for tensor in tensors), strict=True))
    return out
