"""Attention over a whole packed sequence in one call, by torch's flex attention, which compiles a kernel for a GPU.

A token sees its own segment up to itself, and the prompt that its segment shares with others. What no token of a block
of queries sees is left out by the block, so no mask of tokens lies in memory. Blocks are found on the host, which knows
the lengths: nothing waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # tokens: the kernel's own default; a packed sequence is filled up to a multiple of it
Segment = tuple[int, int, int, int]  # its first token and the one behind its last, and those of the prompt it shares


def on(device: torch.device, values: Tensor) -> Tensor:
    """`values` of the host's memory on `device`, without waiting for what a GPU computes."""
    if device.type == "cpu":
        return values
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


def visible(laid: Sequence[Segment], device: torch.device) -> BlockMask:
    """What each token of segments sees that are `laid` end to end, together a multiple of BLOCK tokens."""
    from torch.nn.attention.flex_attention import BlockMask  # loads torch's compiler, which takes a second

    lengths = torch.tensor([end - start for start, end, _, _ in laid])
    own = torch.tensor([(start, shared, shared_end) for start, _, shared, shared_end in laid], dtype=torch.int)
    own = own.repeat_interleave(lengths, 0).t().contiguous()
    start, shared, shared_end = own.unsqueeze(-1)  # of each token
    query = torch.arange(own.size(1))[:, None]
    low = query[::BLOCK, 0]  # of each block of keys
    high = low + BLOCK - 1
    some = ((start <= high) & (low <= query)) | ((shared <= high) & (low < shared_end))
    every = ((start <= low) & (high <= query)) | ((shared <= low) & (high < shared_end))
    full = every.unflatten(0, (-1, BLOCK)).all(1)
    partial = some.unflatten(0, (-1, BLOCK)).any(1) & ~full

    def listed(kind: Tensor) -> tuple[Tensor, Tensor]:
        order = kind.int().argsort(descending=True, stable=True).int()
        return on(device, kind.sum(-1, dtype=torch.int)[None, None]), on(device, order[None, None])

    starts, shares, ends = on(device, own)

    def sees(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
        before = (key >= shares[query]) & (key < ends[query])
        return before | ((key >= starts[query]) & (key <= query))

    return BlockMask.from_kv_blocks(*listed(partial), *listed(full), BLOCK_SIZE=BLOCK, mask_mod=sees)


@cache
def kernel() -> Callable[..., Any]:
    """The function, compiled once for all lengths where a GPU is."""
    from torch.nn.attention.flex_attention import flex_attention

    plain: Callable[..., Any] = flex_attention
    return torch.compile(plain, dynamic=True) if torch.cuda.is_available() else plain


def attend(query: Tensor, key: Tensor, value: Tensor, blocks: BlockMask, scale: float | None) -> Tensor:
    """Query [t, heads, d], key and value [t, groups, d] -> [t, heads * d]."""
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    out = kernel()(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.size(1) != k.size(1))
    return out[0].transpose(0, 1).reshape(query.size(0), -1)
