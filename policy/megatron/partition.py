"""Which weights are shards of a whole: what Megatron's gradient norm, clipping and checkpoints read off each parameter;
and the whole again, on one rank.

Megatron notes it while it draws random weights. Ours come from files, so nothing is drawn and the note is made here.
Invariant: no model is trained whose notes are not those of the weight mapping. A shard without a note would count as a
copy of rank 0's shard. The gradient's norm, and with it every clipped step, would silently be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes
from torch import Tensor, nn

from policy.architecture import Architecture
from policy.errors import LearnerError
from policy.hf_folder import DTYPE_NAMES
from policy.megatron import lora
from policy.megatron.ranks import exchanged
from policy.tensornames import held
from policy.weights import strips, to_hf

if TYPE_CHECKING:
    from policy.megatron.model import PolicyModel


def _weights(model: PolicyModel) -> Iterator[tuple[str, nn.Parameter]]:
    """All but adapters, which every tensor rank holds whole."""
    return ((name, parameter) for name, parameter in model.named_parameters() if lora.MARK not in name)


def mark(model: PolicyModel) -> None:
    """Note on every parameter that is split over tensor-parallel ranks how it is split."""
    for name, parameter in _weights(model):
        dim = held(name, model.shape).split
        if dim is not None and not hasattr(parameter, "tensor_model_parallel"):  # Megatron notes biases itself
            set_tensor_model_parallel_attributes(parameter, True, dim, strips(name))


def check(model: PolicyModel) -> None:
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


def whole(model: PolicyModel, shape: Architecture, *, on_host: bool = False) -> dict[str, Tensor]:
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
    said = exchanged(msgspec.msgpack.encode({} if first else described))
    if not first:
        for tensor in stage.values():
            dist.send(tensor, 0)
        return {}
    device = next(model.parameters()).device
    for rank, content in enumerate(said):
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
