"""The base model's starting weights: a designed prior, not random ones.

Invariant: the same seed gives the same weights, and nothing here depends on data.

Ordinary initialisation takes very long to find copying and pointing; here the circuits for both are laid out from the
start, and training only tunes them. A model built from these weights must not be called "trained from random weights".
Of the residual stream's 128 dimensions the first 64 hold a token's own code, the rest is a workspace:

- layer 0: heads that look 1, 2 and 3 tokens back (QKV biases and RoPE: score = sum_i cos(theta_i * (distance
  - k))) and one that looks at the nearest element name (`e12`) before, each writing the code found there into its own
  part of the workspace.
- layer 1: induction heads. They look for the place whose *preceding* tokens are the current ones and copy the token
  there (copying), or the element name of the line there (pointing).
- layer 2: one more pair of induction heads, and heads that fetch what layer 1 pointed to some tokens before.

RoPE turns a head's fast dimensions with distance, so codes are compared in the slow half of a head's dimensions only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

EMBED_STD = 0.08
_CODE = 64  # dimensions of a token's own code
# Parts of the workspace, (start, size): codes of 1, 2, 3 tokens back, of the line's name, of what is pointed to.
_BACK1, _BACK2, _BACK3, _LINE, _POINTED = (64, 16), (80, 16), (96, 8), (104, 12), (116, 12)
_SHIFT_GAIN, _MATCH_GAIN, _NEAR_GAIN = 5.0, 2.2, 6.0
_WRITE = 0.16  # what a head of layer 0 writes, per dimension; twice a token's own code


@dataclass(frozen=True, kw_only=True)
class BaseShape:
    """Shape of the base model: a Qwen2 decoder with as many key as query heads and tied embeddings."""

    vocab: int
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    ffn: int = 384
    context: int = 4096
    rope_base: float = 1e6
    norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def hf_config(self) -> dict[str, object]:
        """The Hugging Face `config.json`."""
        return {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "hidden_act": "silu",
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_base,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "attention_dropout": 0.0,
            "bos_token_id": None,
            "eos_token_id": 1,
            "pad_token_id": 0,
            "dtype": "float32",
        }


class _Attention:
    """One layer's attention weights while heads are written into them."""

    def __init__(self, shape: BaseShape, generator: torch.Generator, noise: float) -> None:
        size = (shape.hidden, shape.hidden)
        self.shape = shape
        self.q, self.k, self.v, self.o = (torch.randn(size, generator=generator) * noise for _ in range(4))
        self.q_bias, self.k_bias, self.v_bias = (torch.zeros(shape.hidden) for _ in range(3))

    def frequencies(self) -> Tensor:
        """RoPE's angle per token [head_dim / 2]; dimension i turns together with i + head_dim / 2."""
        half = self.shape.head_dim // 2
        return self.shape.rope_base ** (-torch.arange(half) / half)

    def look_back(self, head: int, distance: float, gain: float, fastest: int = 0, count: int = 5) -> None:
        """Bias `head` towards the token `distance` before, with RoPE's dimensions from `fastest` on."""
        begin, half = head * self.shape.head_dim, self.shape.head_dim // 2
        angles = self.frequencies()[fastest : fastest + count] * distance
        pairs = torch.arange(begin + fastest, begin + fastest + count)
        scale = math.sqrt(gain * math.sqrt(self.shape.head_dim))
        self.q_bias[pairs] += scale
        self.k_bias[pairs] += scale * angles.cos()
        self.k_bias[pairs + half] += scale * angles.sin()

    def match(self, head: int, queries: Sequence[Tensor], keys: Sequence[Tensor], gain: float) -> None:
        """Compare codes, each [n, hidden] as read from the residual, in the slow dimensions of `head`."""
        begin, half = head * self.shape.head_dim, self.shape.head_dim // 2
        slow = [begin + i for i in range(half // 2, half)]
        slow += [i + half for i in slow]
        for rows, matrix in ((queries, self.q), (keys, self.k)):
            code = torch.cat(list(rows))
            matrix[slow[: len(code)]] = code * gain

    def move(self, head: int, read: Tensor, write: Tensor, gain: float) -> None:
        """Let `head` read a code [n, hidden] and write it through [n, hidden] transposed."""
        begin = head * self.shape.head_dim
        rows = slice(begin, begin + len(read))
        self.v[rows] = read
        self.o[:, rows] = write.T * gain

    def named(self, layer: int) -> dict[str, Tensor]:
        prefix = f"model.layers.{layer}.self_attn."
        weights = {f"{x}_proj.weight": w for x, w in zip("qkvo", (self.q, self.k, self.v, self.o), strict=True)}
        biases = {f"{x}_proj.bias": b for x, b in zip("qkv", (self.q_bias, self.k_bias, self.v_bias), strict=True)}
        return {prefix + name: value for name, value in {**weights, **biases}.items()}


def _part(shape: BaseShape, part: tuple[int, int], size: int = 0) -> Tensor:
    """Reads a part of the residual: [size, hidden]."""
    return torch.eye(shape.hidden)[part[0] : part[0] + (size or part[1])]


def initial_weights(shape: BaseShape, seed: int, element_ids: Sequence[int]) -> dict[str, Tensor]:
    """Starting weights under Hugging Face names; `element_ids` are the tokens `e1`, `e2`, ...

    The layout needs hidden = 128, 4 heads and at least 3 layers; further layers start as noise.
    """
    if (shape.hidden, shape.heads) != (128, 4) or shape.layers < 3:
        raise ValueError("the layout is designed for width 128, 4 heads and at least 3 layers")
    g = torch.Generator().manual_seed(seed)
    embedding = torch.randn(shape.vocab, shape.hidden, generator=g) * EMBED_STD
    embedding[:, _CODE:] *= 0.2
    mark = torch.randn(_CODE, generator=g)
    mark *= 8 * EMBED_STD / mark.norm()
    embedding[list(element_ids), :_CODE] = embedding[list(element_ids), :_CODE] * 0.8 + mark * 0.6
    directions = torch.linalg.qr(torch.randn(_CODE, _CODE, generator=g))[0].T
    own = torch.cat([directions, torch.zeros(_CODE, shape.hidden - _CODE)], 1)  # reads a token's own code, [64, hidden]
    layers = [_Attention(shape, g, 0.01) for _ in range(min(shape.layers, 3))]
    layers += [_Attention(shape, g, 0.02) for _ in range(shape.layers - 3)]
    _look_around(layers[0], shape, own, mark)
    _find(layers[1], shape, own)
    _fetch(layers[2], shape, own)
    weights = {"model.embed_tokens.weight": embedding, "model.norm.weight": torch.ones(shape.hidden)}
    for i, attention in enumerate(layers):
        weights |= attention.named(i)
        prefix = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = torch.ones(shape.hidden)
        for name, size in (
            ("gate", (shape.ffn, shape.hidden)),
            ("up", (shape.ffn, shape.hidden)),
            ("down", (shape.hidden, shape.ffn)),
        ):
            std = 0.5 / math.sqrt(shape.hidden) if name != "down" else 0.1 / math.sqrt(shape.ffn)
            weights[f"{prefix}mlp.{name}_proj.weight"] = torch.randn(size, generator=g) * std
    return {name: value.contiguous() for name, value in weights.items()}


def _look_around(layer: _Attention, shape: BaseShape, own: Tensor, mark: Tensor) -> None:
    for head, part in enumerate((_BACK1, _BACK2, _BACK3)):
        layer.look_back(head, head + 1, _SHIFT_GAIN)
        layer.move(head, own[: part[1]], _part(shape, part), _WRITE)
    begin, half = 3 * shape.head_dim, shape.head_dim // 2
    # The nearest element name: what is marked as one scores high, and near ones higher than far ones.
    layer.look_back(3, 0.0, _NEAR_GAIN, fastest=3, count=3)
    layer.q_bias[begin + half - 1] = 6.0
    layer.k[begin + half - 1] = torch.cat([mark / mark.norm(), torch.zeros(shape.hidden - _CODE)]) * 1.5
    layer.move(3, own[: _LINE[1]], _part(shape, _LINE), _WRITE)


def _find(layer: _Attention, shape: BaseShape, own: Tensor) -> None:
    back1, back2 = _part(shape, _BACK1), _part(shape, _BACK2)
    for head in range(2):
        layer.match(head, [own[:16]], [back1], _MATCH_GAIN) if head else layer.match(
            head, [own[:8], back1[:8]], [back1[:8], back2[:8]], _MATCH_GAIN
        )
        layer.move(head, own[32 * head : 32 * head + 32], own[32 * head : 32 * head + 32], 0.3)
    layer.match(2, [own[:8], back1[:8]], [back1[:8], back2[:8]], _MATCH_GAIN)
    layer.match(3, [own[:16]], [back1], _MATCH_GAIN)
    for head in (2, 3):
        layer.move(head, _part(shape, _LINE), _part(shape, _POINTED), 0.16)


def _fetch(layer: _Attention, shape: BaseShape, own: Tensor) -> None:
    back1, back2 = _part(shape, _BACK1), _part(shape, _BACK2)
    for head in range(2):
        layer.match(head, [own[:8], back1[:8]], [back1[:8], back2[:8]], _MATCH_GAIN)
        layer.move(head, own[32 * head : 32 * head + 32], own[32 * head : 32 * head + 32], 0.3)
    for head, distance in ((2, 8.0), (3, 14.0)):
        layer.look_back(head, distance, 1.0, fastest=2, count=3)
        layer.move(head, _part(shape, _POINTED), own[: _POINTED[1]], 0.3)
