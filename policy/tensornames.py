"""Which tensors of a model folder each of Megatron's parameters holds, and the shape of each.

Invariant: this is the only table of names. What a folder must hold, what is loaded and what is exported follow from it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from policy.architecture import Architecture

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class ParameterTensors(NamedTuple):
    """The folder's tensors in one parameter, in order, and the dimension by which tensor-parallel ranks share it."""

    tensors: dict[str, tuple[int, ...]]
    split: int | None


@lru_cache
def outside(arch: Architecture) -> dict[str, ParameterTensors]:
    """The parameters outside the layers, by Megatron's names."""
    return {
        "embedding.word_embeddings.weight": ParameterTensors({EMBEDDING: (arch.vocab, arch.hidden)}, 0),
        "output_layer.weight": ParameterTensors({HEAD: (arch.vocab, arch.hidden)}, 0),
        "decoder.final_layernorm.weight": ParameterTensors({"model.norm.weight": (arch.hidden,)}, None),
    }


@lru_cache
def inside(arch: Architecture) -> dict[str, ParameterTensors]:
    """The parameters of one layer, by what follows the layer's number in Megatron's and in the folder's names."""
    traits, width, ffn, dim = arch.traits, arch.hidden, arch.ffn, arch.head_dim
    rows = {"q": arch.heads * dim, "k": arch.kv_heads * dim, "v": arch.kv_heads * dim}
    gate_up = {"gate_up_proj": 2 * ffn} if traits.fused_gate_up else {"gate_proj": ffn, "up_proj": ffn}
    table = {
        "input_layernorm.weight": ParameterTensors({"input_layernorm.weight": (width,)}, None),
        "self_attention.linear_qkv.weight": ParameterTensors(
            {f"self_attn.{x}_proj.weight": (n, width) for x, n in rows.items()}, 0
        ),
        "self_attention.linear_proj.weight": ParameterTensors(
            {"self_attn.o_proj.weight": (width, arch.heads * dim)}, 1
        ),
        "pre_mlp_layernorm.weight": ParameterTensors({"post_attention_layernorm.weight": (width,)}, None),
        "mlp.linear_fc1.weight": ParameterTensors({f"mlp.{x}.weight": (n, width) for x, n in gate_up.items()}, 0),
        "mlp.linear_fc2.weight": ParameterTensors({"mlp.down_proj.weight": (width, ffn)}, 1),
    }
    if arch.qkv_bias:
        table["self_attention.linear_qkv.bias"] = ParameterTensors(
            {f"self_attn.{x}_proj.bias": (n,) for x, n in rows.items()}, 0
        )
    if traits.qk_norm:
        for x in "qk":
            table[f"self_attention.{x}_layernorm.weight"] = ParameterTensors(
                {f"self_attn.{x}_norm.weight": (dim,)}, None
            )
    if traits.post_norms:
        table["self_attn_bda.weight"] = ParameterTensors({"post_self_attn_layernorm.weight": (width,)}, None)
        table["mlp_bda.weight"] = ParameterTensors({"post_mlp_layernorm.weight": (width,)}, None)
    return table


def held(name: str, arch: Architecture) -> ParameterTensors:
    """What Megatron's parameter `name` holds. Raises KeyError if unknown."""
    if found := outside(arch).get(name):
        return found
    _, _, layer, suffix = name.split(".", 3)
    tensors, split = inside(arch)[suffix]
    return ParameterTensors({f"model.layers.{layer}.{hf}": size for hf, size in tensors.items()}, split)


def expected(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of a model folder."""
    names = {hf: size for one in outside(arch).values() for hf, size in one.tensors.items()}
    if arch.tied:
        del names[HEAD]
    for number in range(arch.layers):
        for suffix in inside(arch):
            names |= held(f"decoder.layers.{number}.{suffix}", arch).tensors
    return names
