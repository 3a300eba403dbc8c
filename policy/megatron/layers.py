"""The transformer layer, Megatron's local one with two parts replaced that need fused kernels, and its packed inputs.

A packed sequence attends within itself only. Each sample's result is the same alone, packed, or behind a prompt that it
shares with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region, scatter_to_sequence_parallel_region
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_layer import TransformerLayer
from torch import Tensor

from policy.errors import LearnerError, PictureError
from policy.megatron import flex
from policy.megatron.flex import on
from policy.packing import MicroBatch, PackedSample, SeenPicture, siblings
from policy.pictures import PicturePlace, PictureStyle, placed, turned_positions

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

MASKED_MOST = 1 << 21  # pairs of a query and a key that one mask covers


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

        With `blocks` all is one call. Else a run of sequences of equal length is one batched call. Of responses to one
        prompt, the prompt attends to itself, once, and then every response to the prompt and to itself.
        """
        if packed_seq_params is None:
            raise ValueError("this attention takes packed sequences only")
        if packed_seq_params.blocks is not None:
            return flex.attend(query, key, value, packed_seq_params.blocks, self.scale)
        parts = packed_seq_params.parts
        sizes = [part.tokens for part in parts]
        outputs = []
        # One split, not slices: the gradient of a slice is a whole tensor of zeros.
        for part, q, k, v in zip(parts, query.split(sizes), key.split(sizes), value.split(sizes), strict=True):
            if not part.responses:
                outputs.append(self._attend(q, k, v, part.count))
                continue
            own = [part.prompt, *([sum(part.responses)] if part.mask is not None else part.responses)]
            (q_prompt, *qs), (k_prompt, *ks), (v_prompt, *vs) = q.split(own), k.split(own), v.split(own)
            outputs.append(self._attend(q_prompt, k_prompt, v_prompt))
            if part.mask is not None:
                outputs.append(self._attend(qs[0], k, v, mask=part.mask))
                continue
            from torch.nn.attention.bias import causal_lower_right  # loads torch's compiler, which takes a second

            for q_own, k_own, v_own in zip(qs, ks, vs, strict=True):
                seen, valued = torch.cat([k_prompt, k_own]), torch.cat([v_prompt, v_own])
                mask = causal_lower_right(q_own.size(0), seen.size(0))
                outputs.append(self._attend(q_own, seen, valued, mask=mask))
        return torch.cat(outputs)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, count: int = 1, mask: Tensor | None = None) -> Tensor:
        """`count` sequences of one length, end to end: causal, or as `mask` [queries, keys] says."""
        q, k, v = (x.unflatten(0, (count, -1)).transpose(1, 2) for x in (query, key, value))
        out = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=mask is None, scale=self.scale, enable_gqa=q.size(1) != k.size(1)
        )
        return out.transpose(1, 2).reshape(query.size(0), -1)


class RMSNorm(torch.nn.RMSNorm):
    """Megatron's wrapper refuses sequence parallelism; this one marks its weight for it instead."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]


class NormedAdd(RMSNorm):
    """Adds what attention or MLP gives to the residual stream, normalised first, in place of Megatron's plain sum."""

    def forward(self, *_: bool) -> Callable[..., Tensor]:  # type: ignore[override]
        """The function that Megatron calls with ((output, no bias), residual, no dropout)."""

        def add(output: tuple[Tensor, None], residual: Tensor, _dropout: float) -> Tensor:
            normed: Tensor = super(NormedAdd, self).forward(output[0])
            return residual + normed

        return add


@dataclass
class PackedPart:
    """Neighbouring tokens that attend to nothing outside: `count` sequences of one length, or siblings."""

    tokens: int
    count: int = 1
    prompt: int = 0  # tokens of the prompt that siblings share
    responses: tuple[int, ...] = ()  # tokens of each sibling's response
    mask: Tensor | None = None  # [response tokens, tokens]: what each token of a response sees, where that is small


@dataclass
class PackedRows(PackedSeqParams):
    """Megatron's description of a packed sequence, plus what the replaced parts need."""

    parts: list[PackedPart] = field(default_factory=list)
    rows: Tensor | None = None  # [r] the only positions whose logits are wanted
    blocks: BlockMask | None = None  # what each token sees, for flex attention; without it `parts` attend one by one
    seen: tuple[Tensor, Tensor] | None = None  # places [n] in the packed sequence, and embeddings [n, h] for them


def sequences(lengths: Sequence[int]) -> list[PackedPart]:
    """Sequences laid end to end; neighbours of equal length make one part."""
    runs = [(len(list(run)), length) for length, run in groupby(lengths)]
    return [PackedPart(tokens=count * length, count=count) for count, length in runs]


def shared(prompt: int, responses: Sequence[int], device: torch.device, masked_most: int) -> PackedPart:
    """A prompt of `prompt` tokens, then the responses to it, of so many tokens each.

    One mask for all responses saves calls, but grows with the square of their number: beyond `masked_most` pairs they
    attend one by one.
    """
    answered = sum(responses)
    if answered * (prompt + answered) > masked_most:
        return PackedPart(tokens=prompt + answered, prompt=prompt, responses=tuple(responses))
    blocks = [torch.ones(length, length, dtype=torch.bool, device=device).tril() for length in responses]
    own = torch.block_diag(*blocks)
    mask = torch.cat([own.new_ones(own.size(0), prompt), own], dim=1)
    return PackedPart(tokens=mask.size(1), prompt=prompt, responses=tuple(responses), mask=mask)


def segments(parts: Sequence[PackedPart]) -> Iterator[flex.Segment]:
    """In order: whole sequences, prompts that are shared, and responses to them."""
    at = 0
    for part in parts:
        prompt = at + part.prompt
        if part.responses:
            yield at, prompt, 0, 0
            start = prompt
            for length in part.responses:
                yield start, start + length, at, prompt
                start += length
        else:
            length = part.tokens // part.count
            yield from ((start, start + length, 0, 0) for start in range(at, at + part.tokens, length))
        at += part.tokens


def packed_params(parts: list[PackedPart], longest: int, rows: Tensor) -> PackedRows:
    """Describe `parts` laid end to end, with positions below `longest`; only the logits at `rows` are wanted."""
    # On the host: Megatron's rotary code reads them six times a layer, and would wait for a GPU each time.
    ends = torch.tensor([0, sum(part.tokens for part in parts)], dtype=torch.int32)
    return PackedRows(
        qkv_format="thd",
        cu_seqlens_q=ends,
        cu_seqlens_kv=ends,
        max_seqlen_q=longest,
        max_seqlen_kv=longest,
        parts=parts,
        rows=rows,
    )


class PackedRotary(RotaryEmbedding):
    """Angles for the tokens of a packed sequence, each at the position that it has in its own sample.

    Megatron takes angles of the packed length for exact ones and applies them row by row.
    """

    positions: Tensor | None = None  # [1, t], or [3, t]: in time, height and width
    axis_of: Tensor | None = None  # [d] by which of three positions each number is turned

    def forward(self, max_seq_len: int, *args: Any, **kwargs: Any) -> Tensor:
        """Angles [t, 1, 1, d] at `positions`, all below `max_seq_len`."""
        if self.positions is None:
            raise ValueError("these angles are of packed sequences only")
        angles: Tensor = super().forward(max_seq_len, *args, **kwargs)
        if self.axis_of is None or len(self.positions) == 1:
            return angles.index_select(0, self.positions[0])
        return angles[:, 0, 0].gather(0, self.positions[self.axis_of.to(self.positions.device)].t())[:, None, None]


class PolicyLayer(TransformerLayer):
    """A layer that drops unread positions before its MLP where it is the last layer.

    Most tokens of a prompt are needed only as keys and values, so this and the output layer see few rows. Where tensor
    ranks share a sequence the rows are shared out again, row 0 again where they don't come out even.
    """

    def _forward_attention(
        self, *args: Any, packed_seq_params: PackedRows, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        hidden, context = super()._forward_attention(*args, packed_seq_params=packed_seq_params, **kwargs)
        rows = packed_seq_params.rows
        if rows is None or self.layer_number != self.config.num_layers:
            return hidden, context
        if not self.config.sequence_parallel:
            return hidden.index_select(0, rows), context
        whole = gather_from_sequence_parallel_region(hidden, tensor_parallel_output_grad=False)
        even = F.pad(rows, (0, -rows.numel() % self.config.tensor_model_parallel_size))
        return scatter_to_sequence_parallel_region(whole.index_select(0, even)), context


def layer_spec(config: TransformerConfig, *, post_norms: bool) -> TransformerBlockSubmodules:
    """The layers of this rank's stage; with `post_norms` what attention and MLP give is normalised."""
    layer: ModuleSpec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization="RMSNorm")
    layer.module = PolicyLayer
    parts = layer.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = RMSNorm
    if post_norms:
        params = {"config": config, "hidden_size": config.hidden_size, "eps": config.layernorm_epsilon}
        parts.self_attn_bda = parts.mlp_bda = ModuleSpec(module=NormedAdd, params=params)
    attention = parts.self_attention.submodules
    attention.core_attention = SdpaCoreAttention
    if config.qk_layernorm:
        attention.q_layernorm = attention.k_layernorm = RMSNorm
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=RMSNorm)


class _Layout:
    """Where the tokens of samples lie in one packed sequence; with a `style`, those of a model that sees."""

    def __init__(self, style: PictureStyle | None) -> None:
        self._style = style
        self.ids: list[int] = []
        # Each token's within its own sample: one number, or three.
        self.positions: list[list[int]] = [[] for _ in range(1 if style is None else 3)]
        self.rows: list[int] = []  # of every trained token, where the logits that predict it are
        self.seen: list[tuple[int, PicturePlace]] = []  # where a picture's pads begin

    def add(self, members: Sequence[PackedSample]) -> None:
        """One sample, or siblings: the prompt of the first, then all responses. Raises LearnerError."""
        first, start = members[0], len(self.ids)
        kept = len(first.ids) - first.response_len if len(members) > 1 else 0
        pictures = places_in(first, self._style)
        self.seen.extend((start + picture.at, picture) for picture in pictures)
        if kept:
            self._take(first.ids[:kept], 0, pictures)
        for sample in members:
            shift = len(self.ids) - kept  # from a position in the sample to its row, behind the prompt
            self._take(sample.ids[kept:], kept, pictures)
            self.rows.extend((start if position <= kept else shift) + position - 1 for position in sample.targets())

    def _take(self, ids: Sequence[int], start: int, pictures: Sequence[PicturePlace]) -> None:
        """Tokens of a sample from `start` on."""
        self.ids.extend(ids)
        end = start + len(ids)
        whole = turned_positions(end, pictures) if pictures else [range(end)] * len(self.positions)
        for axis, own in zip(self.positions, whole, strict=True):
            axis.extend(own[start:])

    def fill(self, count: int) -> None:
        self.ids.extend([0] * count)
        for axis in self.positions:
            axis.extend([0] * count)


def places_in(sample: PackedSample, style: PictureStyle | None) -> list[PicturePlace]:
    """Where its pictures lie. Raises LearnerError unless each has its pads, and each pad of the prompt its picture."""
    if style is None:
        if sample.pictures:
            raise LearnerError("a sample has pictures, and the model reads text alone")
        return []
    prompt = sample.ids[: next(iter(sample.targets()))]
    places = [_place(picture, style) for picture in sample.pictures]
    for place in places:
        if sample.ids[place.at : place.at + place.tokens] != [style.pad_id] * place.tokens:
            raise LearnerError(f"picture {place.digest:.16} has other pads than its {place.tokens} at {place.at}")
    if prompt.count(style.pad_id) != sum(place.tokens for place in places if place.at < len(prompt)):
        raise LearnerError("a sample's prompt has pads of a picture that it lacks")
    return places


def _place(picture: SeenPicture, style: PictureStyle) -> PicturePlace:
    try:
        return placed(picture.at, picture.digest, picture.png, style)
    except PictureError as error:
        raise LearnerError(f"picture {picture.digest:.16}: {error}") from error


class PackedInputs:
    """A micro-batch as tensors: t packed tokens, r predicted tokens in packing order.

    Where tensor ranks share a sequence, or with `flexible` attention, it is filled up to a `multiple` of tokens that
    attend to themselves alone.
    """

    def __init__(
        self,
        batch: MicroBatch,
        device: torch.device,
        multiple: int = 1,
        style: PictureStyle | None = None,
        *,
        flexible: bool = False,
    ) -> None:
        # Equal lengths are neighbours: attention takes each run of them at once. Siblings follow, each lot by itself.
        indices = sorted(siblings(batch.samples), key=lambda lot: (len(lot) > 1, len(batch.samples[lot[0]].ids)))
        self._order = [index for lot in indices for index in lot]
        samples = [batch.samples[i] for i in self._order]
        lots = [[batch.samples[i] for i in lot] for lot in indices]
        layout = _Layout(style)
        for lot in lots:
            layout.add(lot)
        parts = sequences([len(lot[0].ids) for lot in lots if len(lot) == 1])
        for lot in lots:
            if len(lot) > 1:
                prompt = len(lot[0].ids) - lot[0].response_len
                masked_most = 0 if flexible else MASKED_MOST
                parts.append(shared(prompt, [sample.response_len for sample in lot], device, masked_most))
        if filling := -len(layout.ids) % multiple:
            parts.append(PackedPart(tokens=filling))
            layout.fill(filling)
        self._counts = [sample.response_len for sample in samples]
        counts = torch.tensor(self._counts)
        self.lengths = on(device, counts)  # of each sample, in packing order
        self.ids = on(device, torch.tensor(layout.ids)[None])
        self.positions = on(device, torch.tensor(layout.positions))
        self.seen = layout.seen
        longest = max(len(sample.ids) for sample in samples)
        self.packed = packed_params(parts, longest, on(device, torch.tensor(layout.rows)))
        alone = len(parts) == 1 + (filling > 0) and not parts[0].responses  # which is one call in either case
        if flexible and not alone:
            self.packed.blocks = flex.visible(list(segments(parts)), device)
        self.targets = on(device, torch.tensor([s.ids[position] for s in samples for position in s.targets()]))  # [r]
        each = torch.tensor([(s.weight, s.advantage, s.temperature, s.fresh) for s in samples], dtype=torch.float32)
        spread = each.repeat_interleave(counts, 0).t().contiguous()
        self.weights, self.advantages, self.temperatures, fresh = on(device, spread)
        self.fresh = fresh > 0
        self.at_unit = all(sample.temperature == 1.0 for sample in samples)
        # By places, which the host knows: choosing by a mask would wait for the device.
        places = [place for place, new in enumerate(spread[3].tolist()) if new]
        self.fresh_places = on(device, torch.tensor(places, dtype=torch.long))
        logprobs = [value for sample in samples for value in sample.behaviour_logprobs]
        self.behaviour = on(device, torch.tensor(logprobs, dtype=torch.float32))  # [r], or empty

    def by_sample(self, values: Tensor) -> list[Tensor]:
        """Split `values` [r, ...] by sample, in the order the micro-batch has."""
        parts = dict(zip(self._order, values.split(self._counts), strict=True))
        return [parts[i] for i in range(len(parts))]
