"""Log-probabilities and entropy over a vocabulary that may be split over tensor-parallel ranks.

Invariant: every rank gets the same values, those of the whole vocabulary; all arithmetic is in fp32.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region as reduce_shards
from torch import Tensor


def _split() -> bool:
    return parallel_state.get_tensor_model_parallel_world_size() > 1


def log_normalizer(logits: Tensor) -> Tensor:
    """Log of the softmax's denominator [r] for logits [r, vocab shard]."""
    if not _split():
        return logits.logsumexp(-1)
    peak = logits.detach().amax(-1)
    dist.all_reduce(peak, dist.ReduceOp.MAX, group=parallel_state.get_tensor_model_parallel_group())
    return peak + reduce_shards((logits - peak[:, None]).exp().sum(-1)).log()


def _target_logits(logits: Tensor, targets: Tensor) -> Tensor:
    if not _split():
        return logits.gather(-1, targets[:, None])[:, 0]
    first = parallel_state.get_tensor_model_parallel_rank() * logits.size(-1)
    here = (targets >= first) & (targets < first + logits.size(-1))
    local = logits.gather(-1, torch.where(here, targets - first, 0)[:, None])[:, 0]
    return reduce_shards(torch.where(here, local, 0.0))


def token_logprobs(logits: Tensor, targets: Tensor, temperatures: Tensor | None = None) -> Tensor:
    """Log-probability [r] of `targets` [r] under logits [r, vocab shard] divided by `temperatures` [r]."""
    scaled = logits.float() if temperatures is None else logits.float() / temperatures[:, None]
    return _target_logits(scaled, targets) - log_normalizer(scaled)


@torch.no_grad()
def predicted(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether [r] each target has the largest logit of its row; ties count as predicted."""
    peak = logits.amax(-1)
    if _split():
        dist.all_reduce(peak, dist.ReduceOp.MAX, group=parallel_state.get_tensor_model_parallel_group())
    return _target_logits(logits, targets) >= peak


@torch.no_grad()
def entropy(logits: Tensor) -> Tensor:
    """Entropy [r] of softmax(logits) in nats; a figure, so without gradient."""
    logits = logits.float()
    normalizer = log_normalizer(logits)
    expected = ((logits - normalizer[:, None]).exp() * logits).sum(-1)
    return normalizer - (reduce_shards(expected) if _split() else expected)
