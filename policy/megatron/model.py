"""Megatron's GPTModel over packed samples, with logits only where a token is predicted.

Invariant: logits row i belongs to the i-th trained token of the packed samples, and does not depend on how the
samples were packed.
"""

from __future__ import annotations

import atexit

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor

from policy.megatron import shim
from policy.megatron.config import DTYPES, ModelShape, transformer_config
from policy.megatron.spec import PackedRows, layer_spec, packed_params
from policy.packing import MicroBatch
from policy.weights import from_hf


def ensure_parallel(seed: int) -> None:
    """Join the process groups, once per process. RANK and WORLD_SIZE unset mean a single rank without a port."""
    if not dist.is_initialized():
        backend = "gloo" if shim.ON_CPU else "nccl"
        if dist.is_torchelastic_launched():
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        atexit.register(_leave_parallel)  # gloo's threads must end before the interpreter, else it aborts now and then
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)


def _leave_parallel() -> None:
    if parallel_state.is_initialized():
        parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()


class PolicyModel(GPTModel):
    """A GPTModel of one pipeline stage over packed sequences."""

    def __init__(self, shape: ModelShape, dtype: str) -> None:
        config = transformer_config(shape, DTYPES[dtype])
        with shim.cuda_literals():
            super().__init__(
                config,
                layer_spec(config),
                vocab_size=shape.vocab,
                max_sequence_length=shape.context,
                position_embedding_type="rope",
                rotary_base=shape.rope_base,
                share_embeddings_and_output_weights=shape.tied,
                parallel_output=True,
            )

    def forward(self, ids: Tensor, positions: Tensor, packed: PackedRows) -> Tensor:
        """Ids and positions [1, t] -> logits [r, vocab / tensor-parallel size] at `packed.rows` [r]."""
        return super().forward(ids, positions, None, packed_seq_params=packed)[0]

    @torch.no_grad()
    def load_hf(self, tensors: dict[str, Tensor], shape: ModelShape) -> None:
        """Copy Hugging Face weights in. Raises KeyError for a missing tensor."""
        size = parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_tensor_model_parallel_rank()
        for name, parameter in self.named_parameters():
            parameter.copy_(from_hf(name, tensors, shape, tp_size=size, tp_rank=rank))


class PackedInputs:
    """A micro-batch as tensors: t packed tokens, r predicted tokens in packing order."""

    def __init__(self, batch: MicroBatch, device: torch.device) -> None:
        # Equal lengths side by side: attention takes each run of them at once.
        self._order = sorted(range(len(batch.samples)), key=lambda i: len(batch.samples[i].ids))
        samples = [batch.samples[i] for i in self._order]
        lengths = [len(sample.ids) for sample in samples]
        flat = [token for sample in samples for token in sample.ids]
        rows: list[int] = []
        start = 0
        for sample in samples:
            rows.extend(start + position - 1 for position in sample.targets())
            start += len(sample.ids)
        self._counts = [sample.response_len for sample in samples]
        counts = torch.tensor(self._counts)
        self.ids = torch.tensor(flat, device=device)[None]
        self.positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
        predicting = torch.tensor(rows, device=device)
        self.packed = packed_params(lengths, predicting, device)
        self.targets = self.ids[0, predicting + 1]  # [r]
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
