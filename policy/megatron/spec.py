"""The transformer layer: Megatron's local layer with the two parts replaced that need fused kernels.

Invariant: a packed sequence attends within itself only, and each sample's result is the same alone or packed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch import Tensor


class SdpaCoreAttention(MegatronModule):
    """Causal attention by torch's SDPA over packed sequences, with grouped queries; no dropout."""

    def __init__(self, config: TransformerConfig, *_: Any, softmax_scale: float | None = None, **__: Any) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        packed_seq_params: PackedSeqParams | None = None,
        **_: Any,
    ) -> Tensor:
        """Query [t, heads, d], key and value [t, groups, d] -> [t, heads * d].

        Sequences of equal length lie next to each other (see `packed_params`' caller), so each run of them is
        one batched call.
        """
        if packed_seq_params is None:
            raise ValueError("this attention takes packed sequences only")
        grouped = query.size(1) != key.size(1)
        outputs = []
        for begin, count, length in packed_seq_params.runs:
            end = begin + count * length
            q, k, v = (
                x[begin:end].view(count, length, x.size(1), x.size(2)).transpose(1, 2) for x in (query, key, value)
            )
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale, enable_gqa=grouped)
            outputs.append(out.transpose(1, 2).reshape(end - begin, -1))
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


class RMSNorm(torch.nn.RMSNorm):
    """Megatron's wrapper refuses sequence parallelism; this one marks its weight for it instead."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


class PackedRuns(PackedSeqParams):
    """Megatron's description of a packed sequence, plus its runs of equal lengths: (begin, count, length)."""

    runs: list[tuple[int, int, int]]


def packed_params(lengths: list[int], device: torch.device) -> PackedRuns:
    """Describe sequences of `lengths` laid end to end."""
    runs: list[tuple[int, int, int]] = []
    begin = 0
    for length in lengths:
        if runs and runs[-1][2] == length:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, length)
        else:
            runs.append((begin, 1, length))
        begin += length
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32)
    longest = max(lengths)
    packed = PackedRuns(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=longest, max_seqlen_kv=longest
    )
    packed.runs = runs
    return packed


def layer_spec(config: TransformerConfig) -> TransformerBlockSubmodules:
    """All layers of one stage."""
    layer: ModuleSpec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = RMSNorm
    attention = parts.self_attention.submodules
    attention.core_attention = SdpaCoreAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return TransformerBlockSubmodules(layer_specs=[layer] * config.num_layers, layer_norm=RMSNorm)
