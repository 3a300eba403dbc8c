"""Megatron's GPTModel over packed samples, how micro-batches run through it, and its weights whole again on one rank.

Row i of what the model gives belongs to the i-th trained token of the packed samples. It does not depend on how the
samples were packed. The output layer is `policy.megatron.objective`'s, so a model never has the logits of all rows.

Invariant: no model is trained unless each parameter carries the right note of how ranks share it. Megatron's gradient
norm, clipping and checkpoints read these notes. Megatron writes them while it draws random weights. Ours come from
files, so they are written here. A shard without one would count as a copy of rank 0's shard, and every clipped step
would silently be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.pipeline_parallel.schedules import forward_backward_pipelining_without_interleaving
from megatron.core.tensor_parallel import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
    set_tensor_model_parallel_attributes,
)
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn

from policy.architecture import Architecture, inverse_frequencies
from policy.errors import LearnerError
from policy.hf_folder import DTYPE_NAMES, DTYPES, from_hf, strips, to_hf
from policy.megatron import ON_CPU, cuda_literals, flex, lora
from policy.megatron.layers import PackedInputs, PackedRotary, PackedRows, layer_spec
from policy.megatron.objective import VocabRows
from policy.megatron.ranks import StepTally, exchanged
from policy.packing import MicroBatch
from policy.pictures import PictureStyle
from policy.settings import LoraConfig, ParallelConfig
from policy.tensorfiles import held
from policy.vision.eyes import Eyes

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
        perform_initialization=False,  # weights come from files; what else Megatron does then is done by `mark_shards`
        tensor_model_parallel_size=parallel.tensor,
        pipeline_model_parallel_size=parallel.pipeline,
        sequence_parallel=parallel.sequence,
        variable_seq_lengths=parallel.pipeline > 1,  # a packed sequence is as long as its samples
        moe_token_dispatcher_type="alltoall",  # noqa: S106  such lengths need it, experts or not
        calculate_per_token_loss=True,  # gradients are summed over ranks: sample weights hold the denominators
        bias_activation_fusion=not ON_CPU,  # a CPU would have to compile it
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        apply_rope_fusion=False,
        bias_dropout_fusion=False,
    )


class PolicyModel(GPTModel):
    """This rank's shard of a GPTModel over packed sequences: the weights of its pipeline stage and tensor rank."""

    def __init__(
        self, shape: Architecture, dtype: str, parallel: ParallelConfig | None = None, recompute: str = "none"
    ) -> None:
        parallel = parallel or ParallelConfig()
        config = transformer_config(shape, DTYPES[dtype], parallel, recompute)
        with cuda_literals():
            super().__init__(
                config,
                layer_spec(config, post_norms=shape.traits.post_norms),
                vocab_size=parallel.vocab_rows(shape) * parallel.tensor,
                max_sequence_length=shape.context,
                position_embedding_type="rope",
                share_embeddings_and_output_weights=shape.tied,
                parallel_output=True,
                pre_process=parallel_state.is_pipeline_first_stage(),
                post_process=parallel_state.is_pipeline_last_stage(),
            )
        self.shape = shape
        self.adapters: dict[str, lora.Adapter] = {}
        mark_shards(self)
        self.rotary_pos_emb = PackedRotary(
            shape.rotary_dim,
            rotary_percent=1.0,
            rotary_interleaved=shape.traits.interleaved,
            use_cpu_initialization=ON_CPU,
        )
        self.rotary_pos_emb.inv_freq = inverse_frequencies(shape)
        if shape.mrope:
            axes = torch.arange(3).repeat_interleave(torch.tensor(shape.mrope))
            both = axes.repeat_interleave(2) if shape.traits.interleaved else axes.repeat(2)
            self.rotary_pos_emb.axis_of = both

    def forward(self, ids: Tensor, positions: Tensor, packed: PackedRows) -> Tensor:
        """Ids [1, t], positions [1 or 3, t] -> hidden states [r, h] at `packed.rows` [r], which `rows` takes.

        Before the last pipeline stage: what the next stage takes.
        """
        self.rotary_pos_emb.positions = positions
        shown = self._shown(ids, positions, *packed.seen) if packed.seen and self.pre_process else None
        output: Tensor = super().forward(ids, positions[:1], None, decoder_input=shown, packed_seq_params=packed)
        return output

    def _shown(self, ids: Tensor, positions: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        """Embeddings [t, 1, h] of text, or this rank's part of them, with what is `seen` [n, h] at `places` [n]."""
        hidden: Tensor = self.embedding(input_ids=ids, position_ids=positions[:1])
        if self.config.sequence_parallel:
            first = parallel_state.get_tensor_model_parallel_rank() * hidden.size(0)
            own = (places >= first) & (places < first + hidden.size(0))
            places, seen = places[own] - first, seen[own]
        return hidden.index_copy(0, places, seen.to(hidden.dtype)[:, None])

    def _postprocess(self, *, hidden_states: Tensor, packed_seq_params: PackedRows, **_: Any) -> Tensor:
        if not self.post_process:
            return hidden_states
        if self.config.sequence_parallel:  # the rows were filled up to be shared evenly
            whole = gather_from_sequence_parallel_region(hidden_states, tensor_parallel_output_grad=True)
        else:
            whole = copy_to_tensor_model_parallel_region(hidden_states)
        return whole[:, 0] if packed_seq_params.rows is None else whole[: packed_seq_params.rows.numel(), 0]

    def rows(self, hidden: Tensor) -> VocabRows:
        """What the last stage's forward pass gave, before the output layer."""
        tied = self.share_embeddings_and_output_weights
        weight = self.shared_embedding_or_output_weight() if tied else self.output_layer.weight
        return VocabRows(hidden, weight, self.shape.vocab)

    def named_weights(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The parameters by the names that they have in a model of one stage.

        The last of several stages has a copy of a tied embedding, under the embedding's name.
        """
        for name, parameter in self.named_parameters():
            if lora.MARK in name:
                continue
            whole = name
            if name.startswith("decoder.layers."):
                number, rest = name.removeprefix("decoder.layers.").split(".", 1)
                whole = f"decoder.layers.{self.decoder.layers[int(number)].layer_number - 1}.{rest}"
            elif name == "output_layer.weight" and self.share_embeddings_and_output_weights:
                whole = "embedding.word_embeddings.weight"
            yield whole, parameter

    def merged_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The same with what adapters add."""
        for name, parameter in self.named_weights():
            yield name, self.adapters[name].merged(parameter) if name in self.adapters else parameter

    def adapt(self, config: LoraConfig, seed: int) -> None:
        """Freeze the model and give it adapters, kept by the names of the weights that they add to."""
        self.requires_grad_(requires_grad=False)
        draw = torch.Generator().manual_seed(seed)
        for name, parameter in list(self.named_weights()):
            if name.startswith("decoder.layers.") and name.split(".", 3)[3] in config.adapted(self.shape):
                linear = self.get_submodule(name.removesuffix(".weight"))
                linear.lora = self.adapters[name] = lora.Adapter(
                    name, config, self.shape, parameter.dtype, draw, sequence=self.config.sequence_parallel
                )
                linear.register_forward_hook(_add_adapter)
        # Megatron computes a layer again only where its input has a gradient, and a frozen embedding's output has none.
        self.embedding.register_forward_hook(lambda *called: called[2].requires_grad_(torch.is_grad_enabled()))

    @torch.no_grad()
    def load_hf(self, tensors: dict[str, Tensor], shape: Architecture) -> None:
        """Copy Hugging Face weights in. Raises KeyError for a missing tensor."""
        size = parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_tensor_model_parallel_rank()
        for name, parameter in self.named_weights():
            parameter.copy_(from_hf(name, tensors, shape, tp_size=size, tp_rank=rank))


def _add_adapter(
    linear: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    return output[0] + linear.lora(inputs[0]), output[1]


def _weights(model: PolicyModel) -> Iterator[tuple[str, nn.Parameter]]:
    """All but adapters, which every tensor rank holds whole."""
    return ((name, parameter) for name, parameter in model.named_parameters() if lora.MARK not in name)


def mark_shards(model: PolicyModel) -> None:
    """Note on every parameter that is split over tensor-parallel ranks how it is split."""
    for name, parameter in _weights(model):
        dim = held(name, model.shape).split
        if dim is not None and not hasattr(parameter, "tensor_model_parallel"):  # Megatron notes biases itself
            set_tensor_model_parallel_attributes(parameter, True, dim, strips(name))


def check_shards(model: PolicyModel) -> None:
    """Raise LearnerError for the first parameter of `model` whose note is missing or wrong."""
    for name, parameter in _weights(model):
        dim = held(name, model.shape).split
        split = (dim is not None, -1 if dim is None else dim, strips(name))
        noted = tuple(
            getattr(parameter, key, default)
            for key, default in (("tensor_model_parallel", False), ("partition_dim", -1), ("partition_stride", 1))
        )
        if noted != split:
            raise LearnerError(
                f"{name} can't be trained: (tensor_model_parallel, partition_dim, partition_stride) is {noted}, "
                f"and its weights are split as {split}"
            )


def whole_tensors(model: PolicyModel, shape: Architecture, *, on_host: bool = False) -> dict[str, Tensor]:
    """Full Hugging Face tensors of all stages on rank 0, and none elsewhere; every rank calls this.

    Tensors of the first stage may share the model's memory. With `on_host` they lie in the host's memory, so that the
    model's device has one of them at a time.
    """
    first = dist.get_rank() == 0

    def placed(tensor: Tensor) -> Tensor:
        return tensor.cpu() if on_host and first else tensor

    stage: dict[str, Tensor] = {}
    if parallel_state.get_data_parallel_rank() == 0:
        for weight in model.merged_weights():  # one by one: only the first of the tensor ranks keeps what it gathered
            tensors = to_hf([weight], shape, gather)
            if parallel_state.get_tensor_model_parallel_rank() == 0:
                stage |= {name: placed(tensor) for name, tensor in tensors.items()}
    if parallel_state.get_pipeline_model_parallel_world_size() == 1:
        return stage
    described = {name: (DTYPE_NAMES[tensor.dtype], list(tensor.shape)) for name, tensor in stage.items()}
    sent = exchanged(msgspec.msgpack.encode({} if first else described))
    if not first:
        for tensor in stage.values():
            dist.send(tensor, 0)
        return {}
    device = next(model.parameters()).device
    for rank, content in enumerate(sent):
        for name, (dtype, size) in msgspec.msgpack.decode(content, type=dict[str, tuple[str, list[int]]]).items():
            tensor = torch.empty(size, dtype=getattr(torch, dtype), device=device)
            dist.recv(tensor, rank)
            stage.setdefault(name, placed(tensor))  # a tied embedding comes from the last stage once more
    return stage


def gather(shard: Tensor) -> list[Tensor]:
    """The shards of all tensor-parallel ranks, in order; every rank calls this."""
    size = parallel_state.get_tensor_model_parallel_world_size()
    if size == 1:
        return [shard]
    parts = [torch.empty_like(shard) for _ in range(size)]
    dist.all_gather(parts, shard.contiguous(), group=parallel_state.get_tensor_model_parallel_group())
    return parts


T = TypeVar("T")
Kept = dict[int, PackedInputs]  # the inputs of a step's micro-batches, by their numbers
Loss = Callable[[int, PackedInputs, VocabRows], Tensor]  # a micro-batch's number, inputs and rows -> its loss


class MicroBatchRunner:
    """Runs one model, or one wrapped by Megatron's DDP."""

    def __init__(
        self,
        model: torch.nn.Module,
        device: torch.device,
        multiple: int,
        style: PictureStyle | None = None,
        eyes: Eyes | None = None,
        *,
        flexible: bool = False,
    ) -> None:
        """A packed sequence is filled up to a `multiple` of tokens.

        A model that sees has a `style`, and in its first stage `eyes`. With `flexible` attention the sequence is one
        call, and blocks of it.
        """
        self._model, self._device, self._flexible = model, device, flexible
        self._multiple = math.lcm(multiple, flex.BLOCK if flexible else 1)
        self._style, self._eyes = style, eyes
        (self._rows,) = (part.rows for part in model.modules() if isinstance(part, PolicyModel))
        self._stages = parallel_state.get_pipeline_model_parallel_world_size()

    def train(
        self,
        batches: Sequence[MicroBatch],
        loss: Loss,
        tally: StepTally,
        forward_s: str = "forward_s",
        backward_s: str = "backward_s",
        *,
        kept: Kept | None = None,
    ) -> None:
        """Add the gradient of the summed `loss` of `batches`; the seconds of both directions go to `tally`.

        Inputs that are `kept` already are not built; others are then kept in it.
        With several stages the seconds of the backward direction include the waiting for other stages.
        """
        if not batches:
            return
        if self._stages > 1:
            with tally.timed(backward_s, less=forward_s):
                self._in_turns(batches, loss, lambda: tally.timed(forward_s), kept)
            return
        for number, batch in enumerate(batches):
            with tally.timed(forward_s):
                inputs = self._known(number, batch, kept)
                value = loss(number, inputs, self._rows(self._forward(inputs)))
            with tally.timed(backward_s):
                value.backward()

    @torch.no_grad()
    def read(
        self, batches: Sequence[MicroBatch], read: Callable[[PackedInputs, VocabRows], T], kept: Kept | None = None
    ) -> list[T]:
        """What `read` makes of each micro-batch's inputs and rows, in order; nothing before the last stage."""
        if self._stages == 1 or not batches:
            each = (self._known(number, batch, kept) for number, batch in enumerate(batches))
            return [read(inputs, self._rows(self._forward(inputs))) for inputs in each]
        values: list[T] = []

        def keep(_: int, inputs: PackedInputs, rows: VocabRows) -> Tensor:
            values.append(read(inputs, rows))
            return rows.hidden.new_zeros(())

        self._in_turns(batches, keep, nullcontext, kept, forward_only=True)
        return values

    def _known(self, number: int, batch: MicroBatch, kept: Kept | None) -> PackedInputs:
        inputs = (kept or {}).get(number) or self._inputs(batch)
        return inputs if kept is None else kept.setdefault(number, inputs)

    def _inputs(self, batch: MicroBatch) -> PackedInputs:
        inputs = PackedInputs(batch, self._device, self._multiple, self._style, flexible=self._flexible)
        if inputs.seen and self._eyes is not None:
            rows = self._eyes.see((picture.digest, picture.png) for _, picture in inputs.seen)
            places = [torch.arange(len(own)) + start for (start, _), own in zip(inputs.seen, rows, strict=True)]
            inputs.packed.seen = (flex.on(self._device, torch.cat(places)), torch.cat(rows))
        return inputs

    def _forward(self, inputs: PackedInputs) -> Tensor:
        output: Tensor = self._model(inputs.ids, inputs.positions, inputs.packed)
        return output

    def _in_turns(
        self,
        batches: Sequence[MicroBatch],
        loss: Loss,
        timed: Callable[[], AbstractContextManager[None]],
        kept: Kept | None,
        *,
        forward_only: bool = False,
    ) -> None:
        def forward(numbered: Iterator[tuple[int, MicroBatch]], _: Any) -> tuple[Tensor, Any]:
            number, batch = next(numbered)
            with timed():
                inputs = self._known(number, batch, kept)
                output = self._forward(inputs)

            def final(hidden: Tensor) -> tuple[Tensor, Tensor, None]:
                # Weights hold the denominators, so Megatron is to divide by nothing: it counts one token.
                with timed():
                    return loss(number, inputs, self._rows(hidden)), torch.ones((), dtype=torch.int), None

            return output, final

        with cuda_literals():
            forward_backward_pipelining_without_interleaving(
                forward_step_func=forward,
                data_iterator=iter(enumerate(batches)),
                model=self._model,
                num_microbatches=len(batches),
                seq_length=1,  # not read: stages say how long each sequence is
                micro_batch_size=1,
                forward_only=forward_only,
            )
