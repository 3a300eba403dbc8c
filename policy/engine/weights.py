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

from policy.architecture import Architecture, read_architecture
from runtime.errors import ConfigError, EngineError


class _Take(Protocol):
    def __call__(self, name: str, *shape: int) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder block; matrices are stored transposed: [in, out]."""

    attention_norm: Tensor  # [width]
    qkv: Tensor  # [hidden, (heads + 2 * kv_heads) * head_dim]
    qkv_bias: Tensor  # [(heads + 2 * kv_heads) * head_dim], zeros where the model has none
    head_norm: Tensor | None  # [heads + kv_heads, head_dim]
    out: Tensor  # [heads * head_dim, hidden]
    mlp_norm: Tensor  # [width]
    gate_up: Tensor  # [hidden, 2 * ffn]
    down: Tensor  # [ffn, hidden]


@dataclass(frozen=True, slots=True)
class Weights:
    """All parameters of one weight version on one device, float32."""

    arch: Architecture
    embedding: Tensor  # [vocab, hidden]
    layers: tuple[Layer, ...]
    final_norm: Tensor  # [width]
    head: Tensor  # [hidden, vocab]
    digest: str  # blake2b-128 of the safetensors files, hex


def load_weights(folder: Path, device: torch.device) -> Weights:
    """Read a Hugging Face folder (config.json and *.safetensors).

    Raises:
        EngineError: files are missing, unreadable, of the wrong shape, or hold numbers that are not finite.
    """
    try:
        arch = read_architecture(folder)
    except ConfigError as error:
        raise EngineError(str(error)) from error
    tensors, digest = _read_tensors(folder)

    def take(name: str, *shape: int) -> Tensor:
        if name not in tensors:
            raise EngineError(f"{folder} lacks the tensor {name}")
        tensor = tensors[name].to(device=device, dtype=torch.float32)
        if tuple(tensor.shape) != shape:
            raise EngineError(f"{folder}: {name} has shape {tuple(tensor.shape)}, config.json says {shape}")
        if not bool(torch.isfinite(tensor).all()):
            raise EngineError(f"{folder}: {name} holds numbers that are not finite")
        return tensor

    embedding = take("model.embed_tokens.weight", arch.vocab, arch.hidden)
    head = embedding if arch.tied else take("lm_head.weight", arch.vocab, arch.hidden)
    return Weights(
        arch=arch,
        embedding=embedding,
        layers=tuple(_layer(arch, tensors, take, f"model.layers.{i}") for i in range(arch.layers)),
        final_norm=take("model.norm.weight", arch.hidden),
        head=head.t(),
        digest=digest,
    )


def _read_tensors(folder: Path) -> tuple[dict[str, Tensor], str]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(f"{folder} holds no *.safetensors file")
    tensors: dict[str, Tensor] = {}
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        try:
            with file.open("rb") as raw:
                while piece := raw.read(1 << 20):
                    digest.update(piece)
            with safe_open(file, framework="pt", device="cpu") as opened:
                tensors.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 - not a dict
        except (OSError, SafetensorError) as error:
            raise EngineError(f"cannot read {file}: {error}") from error
    return tensors, digest.hexdigest()


def _layer(arch: Architecture, tensors: dict[str, Tensor], take: _Take, prefix: str) -> Layer:
    dim, width = arch.head_dim, arch.hidden
    heads = {"q": arch.heads, "k": arch.kv_heads, "v": arch.kv_heads}
    matrices, biases = [], []
    for part, count in heads.items():
        name = f"{prefix}.self_attn.{part}_proj"
        matrix = take(f"{name}.weight", count * dim, width)
        bias = take(f"{name}.bias", count * dim) if f"{name}.bias" in tensors else matrix.new_zeros(count * dim)
        rotated = part != "v"
        matrices.append(_pair_up(matrix, dim) if rotated else matrix)
        biases.append(_pair_up(bias, dim) if rotated else bias)
    head_norm = None
    if arch.qk_norm:
        query = _pair_up(take(f"{prefix}.self_attn.q_norm.weight", dim), dim)
        key = _pair_up(take(f"{prefix}.self_attn.k_norm.weight", dim), dim)
        head_norm = torch.stack([query] * arch.heads + [key] * arch.kv_heads)
    gate = take(f"{prefix}.mlp.gate_proj.weight", arch.ffn, width)
    up = take(f"{prefix}.mlp.up_proj.weight", arch.ffn, width)
    return Layer(
        attention_norm=take(f"{prefix}.input_layernorm.weight", width),
        qkv=torch.cat(matrices).t(),
        qkv_bias=torch.cat(biases),
        head_norm=head_norm,
        out=take(f"{prefix}.self_attn.o_proj.weight", width, arch.heads * dim).t(),
        mlp_norm=take(f"{prefix}.post_attention_layernorm.weight", width),
        gate_up=torch.cat([gate, up]).t(),
        down=take(f"{prefix}.mlp.down_proj.weight", width, arch.ffn).t(),
    )


def _pair_up(tensor: Tensor, head_dim: int) -> Tensor:
    """Reorder rows of every head from (i, i + dim/2) halves to adjacent pairs."""
    half = head_dim // 2
    return tensor.view(-1, 2, half, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)
