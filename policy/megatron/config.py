"""A Hugging Face `config.json` as a Megatron configuration.

Invariant: only shapes that the weight mapping covers (dense Qwen2 and Qwen3 decoders) get through; anything
else is refused by name before a model is built.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core.transformer import TransformerConfig

from runtime.errors import ConfigError

STYLES = {"qwen2": (True, False), "qwen3": (False, True)}  # model_type -> (QKV bias, norms on queries and keys)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """What of a decoder's shape the weight mapping and the model need."""

    style: str  # "qwen2" or "qwen3"
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int  # positions
    norm_eps: float
    rope_base: float
    tied: bool

    @property
    def qkv_bias(self) -> bool:
        return STYLES[self.style][0]

    @property
    def qk_norm(self) -> bool:
        return STYLES[self.style][1]


def read_shape(folder: Path) -> ModelShape:
    """Shape of the model in `folder`. Raises ConfigError for an architecture or option that is not covered."""
    try:
        raw: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} holds no readable config.json: {error}") from error
    style = raw.get("model_type", "")
    if style not in STYLES:
        raise ConfigError(f"{folder}: model_type {style!r} is not one of {sorted(STYLES)}")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ConfigError(f"{folder}: scaled rotary embeddings are not supported: {rope}")
    bias = raw.get("attention_bias", STYLES[style][0])
    if bias != STYLES[style][0]:
        raise ConfigError(f"{folder}: attention_bias {bias} does not go with {style}")
    if raw.get("use_sliding_window") or raw.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"{folder}: sliding windows and activations other than silu are not supported")
    heads = raw["num_attention_heads"]
    return ModelShape(
        style=style,
        layers=raw["num_hidden_layers"],
        hidden=raw["hidden_size"],
        heads=heads,
        kv_heads=raw.get("num_key_value_heads", heads),
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        ffn=raw["intermediate_size"],
        vocab=raw["vocab_size"],
        context=raw["max_position_embeddings"],
        norm_eps=raw.get("rms_norm_eps", 1e-6),
        rope_base=rope.get("rope_theta", raw.get("rope_theta", 10000.0)),
        tied=raw.get("tie_word_embeddings", False),
    )


def transformer_config(shape: ModelShape, dtype: torch.dtype, *, tensor_parallel: int = 1) -> TransformerConfig:
    """Megatron's configuration of `shape`; every fused kernel is off, so it runs on any device."""
    return TransformerConfig(
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
        qk_layernorm=shape.qk_norm,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=dtype is torch.bfloat16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        attention_softmax_in_fp32=True,
        use_cpu_initialization=True,
        perform_initialization=False,  # weights come from files; what else Megatron does then is done by `partition`
        tensor_model_parallel_size=tensor_parallel,
        calculate_per_token_loss=True,  # gradients are summed over ranks: sample weights hold the denominators
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        bias_dropout_fusion=False,
    )
