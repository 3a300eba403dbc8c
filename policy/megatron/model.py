"""Megatron's GPTModel over packed samples, up to the rows that predict a token.

Invariant: row i belongs to the i-th trained token of the packed samples. It does not depend on how the samples were
packed. The output layer is `policy.megatron.vocab`'s, so a model never has the logits of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region, gather_from_sequence_parallel_region
from megatron.core.transformer import TransformerConfig
from torch import Tensor

from policy.architecture import Architecture
from policy.hf_folder import DTYPES
from policy.megatron import lora, partition, shim
from policy.megatron.spec import PackedPart, PackedRotary, PackedRows, layer_spec, packed_params, sequences, shared
from policy.megatron.vocab import VocabRows
from policy.packing import MicroBatch, PackedSample, siblings
from policy.parallel import ParallelConfig
from policy.rotary import inverse_frequencies
from policy.weights import from_hf

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


class PolicyModel(GPTModel):
    """This rank's shard of a GPTModel over packed sequences: the weights of its pipeline stage and tensor rank."""

    def __init__(
        self, shape: Architecture, dtype: str, parallel: ParallelConfig | None = None, recompute: str = "none"
    ) -> None:
        parallel = parallel or ParallelConfig()
        config = transformer_config(shape, DTYPES[dtype], parallel, recompute)
        with shim.cuda_literals():
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
        partition.mark(self)
        self.rotary_pos_emb = PackedRotary(
            shape.rotary_dim,
            rotary_percent=1.0,
            rotary_interleaved=shape.traits.interleaved,
            use_cpu_initialization=shim.ON_CPU,
        )
        self.rotary_pos_emb.inv_freq = inverse_frequencies(shape)

    def forward(self, ids: Tensor, positions: Tensor, packed: PackedRows) -> Tensor:
        """Ids and positions [1, t] -> hidden states [r, h] at `packed.rows` [r], which `rows` takes.

        Before the last pipeline stage: what the next stage takes.
        """
        self.rotary_pos_emb.positions = positions[0]
        output: Tensor = super().forward(ids, positions, None, packed_seq_params=packed)
        return output

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

    @torch.no_grad()
    def load_hf(self, tensors: dict[str, Tensor], shape: Architecture) -> None:
        """Copy Hugging Face weights in. Raises KeyError for a missing tensor."""
        size = parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_tensor_model_parallel_rank()
        for name, parameter in self.named_weights():
            parameter.copy_(from_hf(name, tensors, shape, tp_size=size, tp_rank=rank))


class _Layout:
    """Where the tokens of samples lie in one packed sequence."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []  # each token's within its own sample
        self.rows: list[int] = []  # of every trained token, where the logits that predict it are

    def add(self, members: Sequence[PackedSample]) -> None:
        """One sample, or siblings: the prompt of the first, then all responses."""
        first, start = members[0], len(self.ids)
        kept = len(first.ids) - first.response_len if len(members) > 1 else 0
        self.ids.extend(first.ids[:kept])
        self.positions.extend(range(kept))
        for sample in members:
            shift = len(self.ids) - kept  # from a position in the sample to its row, behind the prompt
            self.ids.extend(sample.ids[kept:])
            self.positions.extend(range(kept, len(sample.ids)))
            self.rows.extend((start if position <= kept else shift) + position - 1 for position in sample.targets())


class PackedInputs:
    """A micro-batch as tensors: t packed tokens, r predicted tokens in packing order.

    Where tensor ranks share a sequence it is filled up to a `multiple` of tokens that attend to themselves alone.
    """

    def __init__(self, batch: MicroBatch, device: torch.device, multiple: int = 1) -> None:
        # Equal lengths side by side: attention takes each run of them at once. Siblings follow, each lot by itself.
        indices = sorted(siblings(batch.samples), key=lambda lot: (len(lot) > 1, len(batch.samples[lot[0]].ids)))
        self._order = [index for lot in indices for index in lot]
        samples = [batch.samples[i] for i in self._order]
        lots = [[batch.samples[i] for i in lot] for lot in indices]
        layout = _Layout()
        for lot in lots:
            layout.add(lot)
        parts = sequences([len(lot[0].ids) for lot in lots if len(lot) == 1])
        for lot in lots:
            if len(lot) > 1:
                prompt = len(lot[0].ids) - lot[0].response_len
                parts.append(shared(prompt, [sample.response_len for sample in lot], device))
        if filling := -len(layout.ids) % multiple:
            parts.append(PackedPart(tokens=filling))
            layout.ids.extend([0] * filling)
            layout.positions.extend([0] * filling)
        self._counts = [sample.response_len for sample in samples]
        counts = torch.tensor(self._counts)
        self.ids = torch.tensor(layout.ids, device=device)[None]
        self.positions = torch.tensor(layout.positions, device=device)[None]
        longest = max(len(sample.ids) for sample in samples)
        self.packed = packed_params(parts, longest, torch.tensor(layout.rows, device=device), device)
        targets = [sample.ids[position] for sample in samples for position in sample.targets()]
        self.targets = torch.tensor(targets, device=device)  # [r]
        self.weights = self._spread([sample.weight for sample in samples], counts, device)
        self.advantages = self._spread([sample.advantage for sample in samples], counts, device)
        self.temperatures = self._spread([sample.temperature for sample in samples], counts, device)
        self.fresh = self._spread([float(sample.fresh) for sample in samples], counts, device) > 0
        logprobs = [value for sample in samples for value in sample.behaviour_logprobs]
        self.behaviour = torch.tensor(logprobs, dtype=torch.float32, device=device)  # [r], or empty

    def by_sample(self, values: Tensor) -> list[Tensor]:
        """Split `values` [r, ...] by sample, in the order the micro-batch has."""
        parts = dict(zip(self._order, values.split(self._counts), strict=True))
        return [parts[i] for i in range(len(parts))]

    @staticmethod
    def _spread(values: list[float], counts: Tensor, device: torch.device) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(counts).to(device)
