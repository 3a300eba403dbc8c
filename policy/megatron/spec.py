"""The transformer layer: Megatron's local layer with the two parts replaced that need fused kernels.

Invariant: a packed sequence attends within itself only, and each sample's result is the same alone or packed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_layer import TransformerLayer
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
        packed_seq_params: PackedRows | None = None,
        **_: Any,
    ) -> Tensor:
        """Query [t, heads, d], key and value [t, groups, d] -> [t, heads * d].

        A run of sequences of equal length is one batched call.
        """
        if packed_seq_params is None:
            raise ValueError("this attention takes packed sequences only")
        grouped = query.size(1) != key.size(1)
        runs = packed_seq_params.runs
        sizes = [count * length for count, length in runs]
        outputs = []
        # One split, not slices: the gradient of a slice is a whole tensor of zeros.
        for (count, length), *parts in zip(runs, query.split(sizes), key.split(sizes), value.split(sizes), strict=True):
            q, k, v = (x.unflatten(0, (count, length)).transpose(1, 2) for x in parts)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale, enable_gqa=grouped)
            outputs.append(out.transpose(1, 2).reshape(count * length, -1))
        return torch.cat(outputs)


class RMSNorm(torch.nn.RMSNorm):
    """Megatron's wrapper refuses sequence parallelism; this one marks its weight for it instead."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


@dataclass
class PackedRows(PackedSeqParams):
    """Megatron's description of a packed sequence, plus what the replaced parts need."""

    runs: list[tuple[int, int]] = field(default_factory=list)  # (count, length) of neighbours of equal length
    rows: Tensor | None = None  # [r] the only positions whose logits are wanted


def packed_params(lengths: list[int], rows: Tensor, device: torch.device) -> PackedRows:
    """Describe sequences of `lengths` laid end to end, of which only the logits at `rows` are wanted."""
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32)
    return PackedRows(
        qkv_format="thd",
        cu_seqlens_q=ends,
        cu_seqlens_kv=ends,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
        runs=[(len(list(run)), length) for length, run in groupby(lengths)],
        rows=rows,
    )


class PolicyLayer(TransformerLayer):
    """A layer that, when it is the last one, drops the positions nobody reads before its MLP.

    Most tokens of a prompt are needed only as keys and values, so this and the output layer see few rows.
    """

    def _forward_attention(
        self, *args: Any, packed_seq_params: PackedRows, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        hidden, context = super()._forward_attention(*args, packed_seq_params=packed_seq_params, **kwargs)
        if packed_seq_params.rows is not None and self.layer_number == self.config.num_layers:
            hidden = hidden.index_select(0, packed_seq_params.rows)
        return hidden, context


def layer_spec(config: TransformerConfig) -> TransformerBlockSubmodules:
    """All layers of one stage."""
    layer: ModuleSpec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    layer.module = PolicyLayer
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = RMSNorm
    attention = parts.self_attention.submodules
    attention.core_attention = SdpaCoreAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return TransformerBlockSubmodules(layer_specs=[layer] * config.num_layers, layer_norm=RMSNorm)
