"""A model's architecture as a Megatron configuration.

Invariant: what `policy.architecture` lets through is what Megatron computes. Fused kernels are off, but for the
activation's on a GPU: it takes 7 % of a step there.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core.transformer import TransformerConfig

from policy.architecture import Architecture
from policy.megatron import shim
from policy.parallel import ParallelConfig

RECOMPUTE: dict[str, dict[str, Any]] = {  # OptimConfig.recompute in Megatron's words
    "none": {},
    "selective": {"recompute_granularity": "selective", "recompute_modules": ["mlp"]},
    "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
}


def transformer_config(
    shape: Architecture, dtype: torch.dtype, parallel: ParallelConfig | None = None, recompute: str = "none"
) -> TransformerConfig:
    """Megatron's configuration of `shape`, for the device that is here."""
    parallel = parallel or ParallelConfig()
    return TransformerConfig(
        **RECOMPUTE[recompute],
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        ffn_hidden_size=shape.ffn,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_eps,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=shape.qkv_bias,
        qk_layernorm=shape.traits.qk_norm,
        rotary_interleaved=shape.traits.interleaved,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=dtype is torch.bfloat16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        attention_softmax_in_fp32=True,
        use_cpu_initialization=True,
        perform_initialization=False,  # weights come from files; what else Megatron does then is done by `partition`
        tensor_model_parallel_size=parallel.tensor,
        pipeline_model_parallel_size=parallel.pipeline,
        sequence_parallel=parallel.sequence,
        variable_seq_lengths=parallel.pipeline > 1,  # a packed sequence is as long as its samples
        moe_token_dispatcher_type="alltoall",  # noqa: S106  such lengths need it, experts or not
        calculate_per_token_loss=True,  # gradients are summed over ranks: sample weights hold the denominators
        bias_activation_fusion=not shim.ON_CPU,  # a CPU would have to compile it
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        bias_dropout_fusion=False,
    )
