"""Weights of one version, and one forward pass over any mix of prompts and running sequences.

A weights object is complete, finite and never changes after loading, so a pass sees one version only. A token's logits
depend on its own row alone. The rest of the batch changes them by float32 rounding at most.

Tokens of all sequences are packed for the matrix products, without padding. Attention runs once for all one-token
chunks and once per longer chunk. The last layer goes on only with tokens whose logits are wanted. Query and key rows
are reordered so that each rotary pair lies side by side: one complex product rotates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from policy import hf_folder, tensorfiles
from policy.architecture import Architecture, inverse_frequencies, read_architecture
from policy.engine.cache import KeyValueCache
from policy.errors import EngineError
from policy.pictures import style_of
from policy.settings import ADAPTER_CONFIG
from policy.tensorfiles import SEEING
from policy.vision.eyes import Eyes, eyes_of
from runtime import disk
from runtime.errors import ConfigError


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
    digest: str  # `tensorfiles.digest` of the safetensors files
    eyes: Eyes | None = None  # of a model that sees


def load_weights(
    folder: Path, device: torch.device, dtype: torch.dtype = torch.float32, adapter: Path | None = None
) -> EngineWeights:
    """Read a Hugging Face folder (config.json and *.safetensors), whatever dtype it is stored in.

    An `adapter` of PEFT's form is merged into the weights, and the digest is that of its tensors.

    Raises:
        EngineError: files are missing or unreadable, tensors are not as `tensorfiles` wants them, or hold numbers that
            are not finite.
    """
    low_rank: dict[str, Tensor] = {}
    scale = 1.0
    try:
        arch = read_architecture(folder)
        if wrong := tensorfiles.problem(folder):
            raise ConfigError(f"{folder}: {wrong}")
        tensors = hf_folder.loaded(folder)
        if adapter is not None:
            scale, low_rank = _scale(adapter), hf_folder.loaded(adapter)
        digest = tensorfiles.digest(adapter or folder)
        style = style_of(folder)
    except (ConfigError, OSError) as error:
        raise EngineError(str(error)) from error

    def take(name: str) -> Tensor:
        tensor = tensors.pop(name).to(device=device)
        stem = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        if (down := low_rank.pop(f"{stem}A.weight", None)) is not None:
            up = low_rank.pop(f"{stem}B.weight", None)
            if up is None or up.shape[1:] != down.shape[:1] or (up.shape[0], down.shape[1]) != tuple(tensor.shape):
                raise EngineError(f"{adapter}: {name} of {list(tensor.shape)} gets another shape")
            # As the learner merges: a sum in float32, rounded to the type that the weights are stored in.
            added = up.to(device).float() @ down.to(device).float()
            tensor = tensor.float().add(added, alpha=scale).to(tensor.dtype)
        tensor = tensor.to(dtype)
        if not bool(torch.isfinite(tensor).all()):
            raise EngineError(f"{folder}: {name} holds numbers that are not finite")
        return tensor

    embedding = take("model.embed_tokens.weight")
    head = embedding if arch.tied else take("lm_head.weight")
    weights = EngineWeights(
        arch=arch,
        embedding=embedding,
        layers=tuple(_layer(arch, take, f"model.layers.{i}") for i in range(arch.layers)),
        final_norm=take("model.norm.weight"),
        head=head.t(),
        digest=digest,
        eyes=eyes_of(
            style, arch, {name: take(name) for name in list(tensors) if name.startswith(SEEING)}, dtype, device
        ),
    )
    if low_rank:
        raise EngineError(f"{adapter}: {min(low_rank)} belongs to no tensor of {folder}")
    return weights


class _Peft(msgspec.Struct, frozen=True):
    """What is used of PEFT's adapter_config.json; other kinds of adapters are refused."""

    r: int
    lora_alpha: float
    peft_type: Literal["LORA"]
    use_rslora: Literal[False] = False
    use_dora: Literal[False] = False
    fan_in_fan_out: Literal[False] = False


def _scale(adapter: Path) -> float:
    """What multiplies B A. Raises EngineError."""
    file = adapter / ADAPTER_CONFIG
    try:
        config = msgspec.json.decode(disk.read_bytes(file, disk.MODEL), type=_Peft)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise EngineError(f"cannot read {file}: {error}") from error
    if config.r < 1:
        raise EngineError(f"{file}: r is {config.r}")
    return config.lora_alpha / config.r


def _layer(arch: Architecture, take: Callable[[str], Tensor], prefix: str) -> Layer:
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


class Chunk(NamedTuple):
    """Consecutive tokens of one sequence whose keys and values up to `start` are in `row`."""

    row: int
    start: int  # position of ids[0]
    ids: list[int]
    wanted: int  # logits are returned for this many of the last tokens
    positions: list[list[int]] | None = None  # in time, height and width; None: those of text
    seen: Sequence[tuple[int, Tensor]] = ()  # place in `ids`, and embeddings in place of the ids' from there on


class _Singles(NamedTuple):
    """Attention of one query per row over that row's past, for all rows below a bound at once."""

    rows: Tensor | None  # [queries]; None when query i belongs to row i
    bound: int
    keys: tuple[Tensor, ...]  # [bound * kv_heads, length, head_dim]
    values: tuple[Tensor, ...]
    mask: Tensor  # [bound * kv_heads, 1, length], 0 or -inf


class _Block(NamedTuple):
    """Attention of the tokens of one longer chunk."""

    first: int  # place of its first token in the packed batch
    last: int  # exclusive
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask: Tensor | None  # None: plainly causal


class Decoder:
    """Runs weights of one architecture over a cache. Not thread safe: one thread computes."""

    def __init__(self, arch: Architecture, cache: KeyValueCache, device: torch.device) -> None:
        self.arch, self.cache, self.device = arch, cache, device
        rates = torch.zeros(arch.head_dim // 2)  # pairs beyond `rotary_dim` stay as they are
        rates[: arch.rotary_dim // 2] = inverse_frequencies(arch)
        angles = torch.outer(torch.arange(cache.length, dtype=torch.float32), rates)
        self._turns = torch.polar(torch.ones_like(angles), angles).to(device)[:, None]  # [length, 1, half]
        pairs = [axis for axis, count in enumerate(arch.mrope) for _ in range(count)]
        self._axis_of = torch.tensor(pairs + [0] * (len(rates) - len(pairs)), device=device)
        self._range = torch.arange(cache.length, device=device)
        self._query_width = arch.heads * arch.head_dim
        self._group = arch.heads // arch.kv_heads

    @torch.inference_mode()
    def forward(self, weights: EngineWeights, chunks: list[Chunk]) -> Tensor:
        """Take on `chunks`, write their keys and values, return float32 logits [sum of wanted, vocab] in order.

        Chunks of one token come first; no row appears twice.
        """
        ids, positions, places = self._pack(chunks)
        singles, blocks = self._attention_plan(chunks)
        hidden = weights.embedding[ids]
        turns = self._turns[positions]
        if any(chunk.positions for chunk in chunks):
            turns = self._see(chunks, hidden)
        for number, layer in enumerate(weights.layers[:-1]):
            mixed = self._project(layer, number, hidden, turns, places)
            self._finish_layer(layer, hidden, self._attend(number, mixed, singles, blocks))
        last = len(weights.layers) - 1
        wanted, plan = self._wanted(chunks)
        mixed = self._project(weights.layers[last], last, hidden, turns, places)
        if plan is not None:
            hidden = hidden[wanted]
            attended = self._attend_singles(last, mixed[wanted], plan)
            self._finish_layer(weights.layers[last], hidden, attended)
        else:
            self._finish_layer(weights.layers[last], hidden, self._attend(last, mixed, singles, blocks))
            hidden = hidden[wanted]
        normed = rms_norm(hidden, (self.arch.hidden,), weights.final_norm, self.arch.norm_eps)
        return (normed @ weights.head).float()

    def _pack(self, chunks: list[Chunk]) -> tuple[Tensor, Tensor, Tensor]:
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for row, start, chunk, *_ in chunks:
            ids += chunk
            positions += range(start, start + len(chunk))
            rows += [row] * len(chunk)
        packed = torch.tensor((ids, positions, rows), device=self.device)
        return packed[0], packed[1], self.cache.places(packed[2], packed[1])

    def _see(self, chunks: list[Chunk], hidden: Tensor) -> Tensor:
        """Put what is seen into `hidden` [tokens, hidden]; returns [tokens, 1, half], each pair by its own axis."""
        axes: list[list[int]] = [[], [], []]
        for chunk in chunks:
            text = list(range(chunk.start, chunk.start + len(chunk.ids)))
            for place, rows in chunk.seen:
                first = len(axes[0]) + place
                hidden[first : first + len(rows)] = rows
            for axis, own in zip(axes, chunk.positions or [text] * 3, strict=True):
                axis.extend(own)
        of_pair = torch.tensor(axes, device=self.device)[self._axis_of].t()
        return self._turns[:, 0].gather(0, of_pair)[:, None]

    def _attention_plan(self, chunks: list[Chunk]) -> tuple[_Singles | None, list[_Block]]:
        ones = [chunk for chunk in chunks if len(chunk.ids) == 1]
        singles = self._singles([(row, start) for row, start, *_ in ones]) if ones else None
        blocks: list[_Block] = []
        first = len(ones)
        for row, start, ids, *_ in chunks[first:]:
            end = start + len(ids)
            keys, values = self.cache.views(slice(row, row + 1), end)
            mask = None
            if start or self._group > 1:
                future = self._range[:end] > self._range[start:end, None]
                mask = self._mask(future).repeat(self._group, 1)
            blocks.append(_Block(first, first + len(ids), keys, values, mask))
            first += len(ids)
        return singles, blocks

    def _mask(self, hidden: Tensor) -> Tensor:
        """0 where a key is seen, -inf where it is `hidden`."""
        zeros = torch.zeros(hidden.shape, device=self.device, dtype=self.cache.rows_kv.dtype)
        return zeros.masked_fill_(hidden, float("-inf"))

    def _singles(self, queries: list[tuple[int, int]]) -> _Singles:
        """Plan for queries at (row, position)."""
        rows = [row for row, _ in queries]
        bound = max(rows) + 1
        length = max(position for _, position in queries) + 1
        last = [0] * bound
        for row, position in queries:
            last[row] = position
        keys, values = self.cache.heads_of(bound, length)
        future = self._range[:length] > torch.tensor(last, device=self.device)[:, None]
        mask = self._mask(future).repeat_interleave(self.arch.kv_heads, 0)[:, None]
        dense = rows == list(range(bound))
        index = None if dense else torch.tensor(rows, device=self.device)
        return _Singles(index, bound, keys, values, mask)

    def _wanted(self, chunks: list[Chunk]) -> tuple[Tensor, _Singles | None]:
        """Packed places of tokens whose logits are wanted; a plan when that is at most one per chunk."""
        places: list[int] = []
        queries: list[tuple[int, int]] = []
        end, simple = 0, True
        for row, start, ids, wanted, *_ in chunks:
            end += len(ids)
            places += range(end - wanted, end)
            simple = simple and wanted <= 1
            if wanted:
                queries.append((row, start + len(ids) - 1))
        plan = self._singles(queries) if simple and queries else None
        return torch.tensor(places, dtype=torch.long, device=self.device), plan

    def _project(self, layer: Layer, number: int, hidden: Tensor, turns: Tensor, places: Tensor) -> Tensor:
        """Queries, keys and values [tokens, *] with rotation applied; keys and values are stored."""
        arch = self.arch
        normed = rms_norm(hidden, (arch.hidden,), layer.attention_norm, arch.norm_eps)
        mixed = torch.addmm(layer.qkv_bias, normed, layer.qkv)
        rotated = arch.heads + arch.kv_heads
        heads = mixed[:, : rotated * arch.head_dim].view(-1, rotated, arch.head_dim)
        exact = heads.float()  # the same memory in float32
        if layer.head_norm is not None:
            scale = exact.square().mean(-1, keepdim=True).add_(arch.norm_eps).rsqrt_()
            exact.mul_(scale).mul_(layer.head_norm)
        torch.view_as_complex(exact.unflatten(-1, (-1, 2))).mul_(turns)
        if exact.dtype is not heads.dtype:
            heads.copy_(exact)
        self.cache.write(number, places, mixed[:, self._query_width :])
        return mixed

    def _attend(self, number: int, mixed: Tensor, singles: _Singles | None, blocks: list[_Block]) -> Tensor:
        """Attention output [tokens, heads * head_dim] of the whole packed batch."""
        if not blocks and singles is not None:
            return self._attend_singles(number, mixed, singles)
        arch = self.arch
        out = mixed.new_empty(mixed.shape[0], self._query_width)
        if singles is not None:
            count = blocks[0].first
            out[:count] = self._attend_singles(number, mixed[:count], singles)
        for first, last, keys, values, mask in blocks:
            tokens = last - first
            query = mixed[first:last, : self._query_width].view(tokens, arch.kv_heads, self._group, arch.head_dim)
            query = query.permute(1, 2, 0, 3).reshape(1, arch.kv_heads, self._group * tokens, arch.head_dim)
            attended = scaled_dot_product_attention(
                query, keys[number], values[number], attn_mask=mask, is_causal=mask is None
            )
            shaped = attended.view(arch.kv_heads, self._group, tokens, arch.head_dim).permute(2, 0, 1, 3)
            out[first:last] = shaped.reshape(tokens, self._query_width)
        return out

    def _attend_singles(self, number: int, mixed: Tensor, plan: _Singles) -> Tensor:
        """Attention output [queries, heads * head_dim] of one query per row."""
        arch, count = self.arch, mixed.shape[0]
        query = mixed[:, : self._query_width]
        if plan.rows is not None:
            query = mixed.new_zeros(plan.bound, self._query_width).index_copy_(0, plan.rows, query)
        query = query.reshape(plan.bound * arch.kv_heads, self._group, arch.head_dim)
        scores = torch.baddbmm(plan.mask, query, plan.keys[number].transpose(1, 2), alpha=arch.head_dim**-0.5)
        attended = torch.bmm(torch.softmax(scores, -1), plan.values[number]).view(plan.bound, self._query_width)
        return attended[:count] if plan.rows is None else attended[plan.rows]

    def _finish_layer(self, layer: Layer, hidden: Tensor, attended: Tensor) -> None:
        """Add the attention output and the gated feed-forward part to `hidden` [tokens, hidden] in place."""
        arch = self.arch
        self._add(hidden, attended, layer.out, layer.attention_post_norm)
        gated = rms_norm(hidden, (arch.hidden,), layer.mlp_norm, arch.norm_eps) @ layer.gate_up
        inner = silu(gated[:, : arch.ffn]).mul_(gated[:, arch.ffn :])
        self._add(hidden, inner, layer.down, layer.mlp_post_norm)

    def _add(self, hidden: Tensor, inner: Tensor, matrix: Tensor, norm: Tensor | None) -> None:
        if norm is None:
            hidden.addmm_(inner, matrix)
        else:
            hidden.add_(rms_norm(inner @ matrix, (self.arch.hidden,), norm, self.arch.norm_eps))
