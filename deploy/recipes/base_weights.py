"""The base model's starting weights: a designed prior, not random ones.

The same seed gives the same weights, and nothing here depends on data.

Ordinary initialisation takes very long to find copying and pointing. Here the circuits for both are laid out from the
start, and training only tunes them. A model built from these weights must not be called "trained from random weights".
Of the residual stream's 128 dimensions the first 64 hold a token's own code, the rest is a workspace:

- layer 0: heads that look 1 and 2 tokens back (QKV biases and RoPE: score = sum_i cos(theta_i * (distance - k))).
  Another head looks at the nearest token that begins a line (`e12`, `task: `). Each writes the code found there into
  its own part of the workspace.
- layer 1: two induction heads copy. They look for the place whose *preceding* tokens are the current ones, and take the
  token there. A third head points: it takes the line's beginning from such a place. A fourth finds what of a screen the
  sentence names. It looks for the same token after the same two, and notes the line it found. It looks in the task's
  line first, and else at the token itself.
- layer 2: where an answer begins, a head looks at the elements' tokens that stand in the sentence, too. These tokens
  vote for their elements' names. Another head repeats the answer's last element where a call points. A third copies. A
  fourth fetches what layer 1 pointed to some tokens before.

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
# Parts of the workspace, (start, size): codes of 1 and 2 tokens back, where else the token is, of the line's name,
# of what is pointed to.
_BACK1, _BACK2, _SEEN, _LINE, _POINTED = (64, 16), (80, 16), (96, 8), (104, 14), (118, 10)
# Dimensions of an own code that only some tokens have.
_TASK, _ELEMENT, _REST, _POINTS, _ANSWERS, _STARTS, _SIDE = 0, 1, 59, 60, 61, 62, 63
_LABEL = (2, 16)  # what describes neighbours and lines
_SIDES = (10, 8)  # of these, the part in which everything that may stand around a name is the same
_SELF = (18, 16)  # what the same token is known by
_SHIFT_GAIN, _MATCH_GAIN, _NEAR_GAIN, _SEEN_GAIN = 5.0, 2.2, 6.0, 2.5
_WRITE = 0.16  # what a head of layer 0 writes, per dimension; twice a token's own code


@dataclass(frozen=True, kw_only=True)
class Marked:
    """Token ids that the layout treats apart."""

    rest: int  # begins the whole; what has nothing to do looks there and reads nothing
    task: int  # begins the task's line
    elements: Sequence[int]  # name elements
    starts: Sequence[int]  # begin other lines
    answers: Sequence[int]  # after them the model answers
    points: Sequence[int]  # after them an element's name follows
    sides: Sequence[int]  # may stand before and after a name


@dataclass(frozen=True, kw_only=True)
class BaseShape:
    """Shape of the base model: a Qwen2 decoder with as many key as query heads and tied embeddings."""

    vocab: int
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    head_dim: int = 64
    ffn: int = 384
    context: int = 4096
    rope_base: float = 1e6
    norm_eps: float = 1e-6

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
            "head_dim": self.head_dim,
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
        inner = shape.heads * shape.head_dim
        self.shape = shape
        self.q, self.k, self.v = (torch.randn((inner, shape.hidden), generator=generator) * noise for _ in range(3))
        self.o = torch.randn((shape.hidden, inner), generator=generator) * noise
        self.q_bias, self.k_bias, self.v_bias = (torch.zeros(inner) for _ in range(3))

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

    def slow(self, head: int) -> int:
        """The slowest dimension of `head`, which hardly turns at all."""
        return head * self.shape.head_dim + self.shape.head_dim // 2 - 1

    def match(self, head: int, queries: Sequence[Tensor], keys: Sequence[Tensor], gain: float) -> None:
        """Compare codes, each [n, hidden] as read from the residual, in the slow dimensions of `head`."""
        begin, half = head * self.shape.head_dim, self.shape.head_dim // 2
        slow = [begin + i for i in range(half // 2, half)]
        slow += [i + half for i in slow]
        for rows, matrix in ((queries, self.q), (keys, self.k)):
            code = torch.cat(list(rows))
            matrix[slow[: len(code)]] = code * gain

    def prefer(self, head: int, reads: Tensor, faster: int = 0) -> None:
        """Score keys of `head` by what `reads` [hidden] reads there, `faster` dimensions before the slowest one."""
        self.q_bias[self.slow(head) - faster] = 6.0
        self.k[self.slow(head) - faster] = reads

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


def initial_weights(shape: BaseShape, seed: int, marked: Marked) -> dict[str, Tensor]:
    """Starting weights under Hugging Face names.

    The layout needs hidden = 128, 4 heads of 64 and at least 3 layers; further layers start as noise.
    """
    if (shape.hidden, shape.heads, shape.head_dim) != (128, 4, 64) or shape.layers < 3:
        raise ValueError("the layout is designed for width 128, 4 heads of 64 and at least 3 layers")
    g = torch.Generator().manual_seed(seed)
    directions = torch.linalg.qr(torch.randn(_CODE, _CODE, generator=g))[0].T
    own = torch.cat([directions, torch.zeros(_CODE, shape.hidden - _CODE)], 1)  # reads a token's own code, [64, hidden]
    embedding = torch.randn(shape.vocab, shape.hidden, generator=g) * EMBED_STD * 0.2
    embedding[:, :_CODE] = _codes(shape, g, marked) @ directions
    layers = [_Attention(shape, g, 0.01) for _ in range(min(shape.layers, 3))]
    layers += [_Attention(shape, g, 0.02) for _ in range(shape.layers - 3)]
    _look_around(layers[0], shape, own)
    _find(layers[1], shape, own)
    _fetch(layers[2], shape, own)
    weights = {"model.embed_tokens.weight": embedding, "model.norm.weight": torch.full((shape.hidden,), 2.0)}
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


def _codes(shape: BaseShape, g: torch.Generator, marked: Marked) -> Tensor:
    """Own codes [vocab, 64]: random, of the same length in every part that is compared, and with the marks."""
    codes = torch.randn(shape.vocab, _CODE, generator=g)
    shared = torch.randn(_SIDES[1], generator=g)
    codes[list(marked.sides), _SIDES[0] : sum(_SIDES)] = shared
    for start, end in ((2, 10), (10, 18), (18, 34), (34, 59)):
        part = codes[:, start:end]
        codes[:, start:end] = part / part.norm(dim=1, keepdim=True) * math.sqrt(end - start)
    codes[:, [_TASK, _ELEMENT, _REST, _POINTS, _ANSWERS, _STARTS, _SIDE]] = 0.0
    codes[marked.rest] = 0.0
    codes[marked.rest, _REST] = 8.0
    codes[marked.task, _TASK] = 3.0
    codes[list(marked.elements), _ELEMENT] = 3.0
    codes[list(marked.points), _POINTS] = 4.0
    codes[list(marked.answers), _ANSWERS] = 4.0
    codes[list(marked.sides), _SIDE] = 3.0
    codes[[marked.task, *marked.elements, *marked.starts, *marked.answers], _STARTS] = 5.0
    return codes * EMBED_STD


def _look_around(layer: _Attention, shape: BaseShape, own: Tensor) -> None:
    for head, part in enumerate((_BACK1, _BACK2)):
        layer.look_back(head, head + 1, _SHIFT_GAIN)
        layer.move(head, own[_LABEL[0] : sum(_LABEL)], _part(shape, part), _WRITE)
    # The nearest token that begins a line: marked ones score high, and near ones higher than far ones.
    layer.look_back(3, 0.0, _NEAR_GAIN, fastest=6, count=6)
    layer.prefer(3, own[_STARTS] * 12.0)
    layer.move(3, own[: _LINE[1]], _part(shape, _LINE), _WRITE)


def _find(layer: _Attention, shape: BaseShape, own: Tensor) -> None:
    label, back1, back2 = own[_LABEL[0] : sum(_LABEL)], _part(shape, _BACK1), _part(shape, _BACK2)
    layer.match(0, [label, back1], [back1, back2], _MATCH_GAIN)
    layer.match(1, [label], [back1], _MATCH_GAIN)
    for head in range(2):
        layer.move(head, own, own, 0.25)
    layer.match(2, [label, back1], [back1, back2], _MATCH_GAIN)
    layer.move(2, _part(shape, _LINE, _POINTED[1]), _part(shape, _POINTED), 0.16)
    # A token in the sentence wins over the token itself where the tokens before agree, and loses otherwise.
    alike = [
        own[_SELF[0] : sum(_SELF)] * 2,
        *(part[_SIDES[0] - _LABEL[0] :] * w for part, w in ((back1, 1), (back2, 0.8))),
    ]
    layer.match(3, alike, alike, _SEEN_GAIN)
    layer.prefer(3, _part(shape, _LINE)[_TASK] * 1.3, 16)
    layer.move(3, _part(shape, _LINE, _SEEN[1]), _part(shape, _SEEN), 0.16)


def _fetch(layer: _Attention, shape: BaseShape, own: Tensor) -> None:
    label, back1, back2 = own[_LABEL[0] : sum(_LABEL)], _part(shape, _BACK1), _part(shape, _BACK2)
    line = _part(shape, _LINE)
    layer.q[layer.slow(0)] = own[_ANSWERS] * 25.0
    layer.k[layer.slow(0)] = _part(shape, _SEEN)[_TASK] * 2.5 + line[_ELEMENT] * 2.0 - own[_SIDE] * 3.0
    layer.prefer(0, own[_REST] * 4.0, 1)
    layer.move(0, line, own[: _LINE[1]], 3.0)
    layer.match(1, [label, back1], [back1, back2], _MATCH_GAIN)
    layer.move(1, own, own, 0.25)
    layer.q[layer.slow(2)] = own[_POINTS] * 25.0
    layer.k[layer.slow(2)] = own[_ELEMENT] * 8.0
    for pair in range(2 * shape.head_dim + 6, 2 * shape.head_dim + 12):  # the nearest one
        layer.q[pair] = own[_POINTS] * 2.0
        layer.k_bias[pair] = 12.0
    layer.prefer(2, own[_REST] * 4.0, 1)
    layer.move(2, own[:_REST], own[:_REST], 0.5)
    layer.look_back(3, 10.0, 1.0, fastest=4, count=6)
    layer.move(3, _part(shape, _POINTED), own[: _POINTED[1]], 0.3)
