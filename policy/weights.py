"""Hugging Face weights to Megatron's layout and back, bit for bit, by the table of `tensornames`.

Megatron's layout: `linear_qkv` rows are, per group of queries, [its query heads | key | value]. `linear_fc1` is [gate;
up]. Under tensor parallelism each rank holds [its part of gate; its part of up]. Rows of zeros fill a vocabulary up
to a multiple of the ranks.

Invariant: `to_hf(from_hf(x)) == x` exactly, at any tensor-parallel size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from policy.architecture import Architecture
from policy.tensornames import held


def strips(name: str) -> int:
    """How many whole tensors a rank's shard of parameter `name` holds a strip of, end to end: gate and up are two."""
    return 2 if "linear_fc1" in name else 1


def from_hf(name: str, hf: dict[str, Tensor], shape: Architecture, *, tp_size: int = 1, tp_rank: int = 0) -> Tensor:
    """The value of parameter `name` on tensor-parallel rank `tp_rank`. Raises KeyError for a missing tensor."""
    names, split = held(name, shape)
    parts = [hf[x] for x in names]
    if "linear_qkv" in name:
        grouped = [part.reshape(shape.kv_heads, -1, *part.shape[1:]) for part in parts]
        parts = [torch.cat(grouped, 1).reshape(-1, *parts[0].shape[1:])]
    if split is None:
        return parts[0]
    if len(parts) < strips(name):  # a folder whose gate and up are one tensor
        parts = list(parts[0].chunk(strips(name)))
    if missing := -parts[0].size(split) % tp_size:  # of a vocabulary alone: `ParallelConfig.refuse` refuses the rest
        parts = [F.pad(parts[0], (0, 0, 0, missing))]
    return torch.cat([part.chunk(tp_size, split)[tp_rank] for part in parts])


def to_hf(
    parameters: Iterable[tuple[str, Tensor]],
    shape: Architecture,
    gather: Callable[[Tensor], list[Tensor]] = lambda x: [x],
) -> dict[str, Tensor]:
    """Full, contiguous HF tensors of Megatron's named parameters.

    `gather` returns a tensor's parts of all tensor-parallel ranks in order; every rank must call this.
    """
    out: dict[str, Tensor] = {}
    for name, value in parameters:
        names, split = held(name, shape)
        parts = [value.detach()] if split is None else gather(value.detach())
        if "linear_fc1" in name:
            halves = [part.chunk(2) for part in parts]
            tensors: list[Tensor] = [torch.cat([half[i] for half in halves]) for i in (0, 1)]
            if len(names) == 1:
                tensors = [torch.cat(tensors)]
        elif "linear_qkv" in name:
            whole = torch.cat(parts)
            rows = whole.reshape(shape.kv_heads, -1, *whole.shape[1:])
            widths = [shape.heads // shape.kv_heads * shape.head_dim, shape.head_dim, shape.head_dim]
            tensors = [x.reshape(-1, *whole.shape[1:]) for x in rows.split(widths, 1)]
        else:
            whole = parts[0] if split is None else torch.cat(parts, split)
            tensors = [whole[: next(iter(names.values()))[0]]]
        out.update(zip(names, (tensor.contiguous() for tensor in tensors), strict=True))
    return out
