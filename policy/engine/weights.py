"""Weights of one version, laid out for few large matrix products.

Invariant: a `Weights` object is complete, finite and never changes after loading, so a forward pass sees one version
only.

Query and key rows are reordered so that each rotary pair lies side by side: one complex product rotates it. Products
of queries and keys stay the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from policy import tensorfiles
from policy.architecture import Architecture, read_architecture
from policy.errors import EngineError
from runtime import disk
from runtime.errors import ConfigError


class _Take(Protocol):
    def __call__(self, name: str) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block; matrices are stored transposed: [in, out]."""

    attention_norm: Tensor  # [width]
    qkv: Tensor  # [hidden, (heads + 2 * kv_heads) * head_dim]
    qkv_bias: Tensor  # [(heads + 2 * kv_heads) * head_dim], zeros where the model has none
    head_norm: Tensor | None  # [heads + kv_heads, head_dim]
    attention_post_norm: Tensor | None  # [width], of what attention gives
    out: Tensor  # [heads * head_dim, hidden]
    mlp_norm: Tensor  # [width]
    gate_up: Tensor  # [hidden, 2 * ffn]
    down: Tensor  # [ffn, hidden]
    mlp_post_norm: Tensor | None  # [width]


@dataclass(frozen=True, slots=True)
class EngineWeights:
    """All parameters of one weight version on one device, of one dtype."""

    arch: Architecture
    embedding: Tensor  # [vocab, hidden]
    layers: tuple[Layer, ...]
    final_norm: Tensor  # [width]
    head: Tensor  # [hidden, vocab]
    digest: str  # blake2b-128 of the safetensors files, hex


def load_weights(folder: Path, device: torch.device, dtype: torch.dtype = torch.float32) -> EngineWeights:
    """Read a Hugging Face folder (config.json and *.safetensors), whatever dtype it is stored in.

    Raises:
        EngineError: files are missing or unreadable, tensors are not as `tensorfiles` wants them, or hold numbers that
            are not finite.
    """
    try:
        arch = read_architecture(folder)
        wrong = tensorfiles.problem(folder)
    except ConfigError as error:
        raise EngineError(str(error)) from error
    if wrong:
        raise EngineError(f"{folder}: {wrong}")
    tensors, digest = _read_tensors(folder)

    def take(name: str) -> Tensor:
        tensor = tensors.pop(name).to(device=device, dtype=dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise EngineError(f"{folder}: {name} holds numbers that are not finite")
        return tensor

    embedding = take("model.embed_tokens.weight")
    head = embedding if arch.tied else take("lm_head.weight")
    return EngineWeights(
        arch=arch,
        embedding=embedding,
        layers=tuple(_layer(arch, take, f"model.layers.{i}") for i in range(arch.layers)),
        final_norm=take("model.norm.weight"),
        head=head.t(),
        digest=digest,
    )


def _read_tensors(folder: Path) -> tuple[dict[str, Tensor], str]:
    tensors: dict[str, Tensor] = {}
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with disk.opened(file) as raw:
                while piece := raw.read(1 << 20):
                    digest.update(piece)
            with safe_open(file, framework="pt", device="cpu") as opened:
                tensors.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError) as error:
            raise EngineError(f"cannot read {file}: {error}") from error
    return tensors, digest.hexdigest()


def _layer(arch: Architecture, take: _Take, prefix: str) -> Layer:
    traits = arch.traits

    def rows(name: str) -> Tensor:
        tensor = take(f"{prefix}.self_attn.{name}")
        turned = not traits.interleaved and not name.startswith("v_")
        return _pair_up(tensor, arch.head_dim) if turned else tensor

    matrix = torch.cat([rows(f"{part}_proj.weight") for part in "qkv"])
    biases = [rows(f"{part}_proj.bias") for part in "qkv"] if arch.qkv_bias else [matrix.new_zeros(len(matrix))]
    head_norm = None
    if traits.qk_norm:
        head_norm = torch.stack([rows("q_norm.weight")] * arch.heads + [rows("k_norm.weight")] * arch.kv_heads)
    gate_up = ("gate_up_proj",) if traits.fused_gate_up else ("gate_proj", "up_proj")
    return Layer(
        attention_norm=take(f"{prefix}.input_layernorm.weight"),
        qkv=matrix.t(),
        qkv_bias=torch.cat(biases),
        head_norm=head_norm,
        attention_post_norm=take(f"{prefix}.post_self_attn_layernorm.weight") if traits.post_norms else None,
        out=take(f"{prefix}.self_attn.o_proj.weight").t(),
        mlp_norm=take(f"{prefix}.post_attention_layernorm.weight"),
        gate_up=torch.cat([take(f"{prefix}.mlp.{name}.weight") for name in gate_up]).t(),
        down=take(f"{prefix}.mlp.down_proj.weight").t(),
        mlp_post_norm=take(f"{prefix}.post_mlp_layernorm.weight") if traits.post_norms else None,
    )


def _pair_up(tensor: Tensor, head_dim: int) -> Tensor:
    """Reorder rows of every head from (i, i + dim/2) halves to adjacent pairs."""
    half = head_dim // 2
    return tensor.view(-1, 2, half, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
