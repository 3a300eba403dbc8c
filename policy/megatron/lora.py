"""Low-rank adapters next to a model's frozen linear layers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core import tensor_parallel
from megatron.core.parallel_state import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
from torch import Tensor, nn

from policy.architecture import Architecture
from policy.hf_folder import from_hf, strips
from policy.settings import LoraConfig, projection
from policy.tensorfiles import held

MARK = ".lora."  # in the names of parameters that no model folder has


class Adapter(nn.Module):
    """What is added to one of Megatron's linear layers: scale * B A x of its projections, in that layer's order."""

    def __init__(
        self,
        name: str,
        lora: LoraConfig,
        arch: Architecture,
        dtype: torch.dtype,
        draw: torch.Generator,
        *,
        sequence: bool = False,
    ) -> None:
        """`name` is that of the layer's weight in any layer. A is drawn as PEFT draws it, and B is zero.

        With `sequence`, tensor ranks share the tokens between layers, too.
        """
        super().__init__()
        self.name, self.rank, self.scale, self.arch = name, lora.rank, lora.alpha / lora.rank, arch
        self.tensors, self.split = held(name, arch)
        self.sequence = sequence
        self.part, self.parts = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
        sizes = {projection(hf): size for hf, size in lora.adapted(arch)[name.split(".", 3)[3]].items()}
        self.a, self.b = nn.ParameterDict(), nn.ParameterDict()
        for target, (out, into) in sizes.items():
            self.a[target] = torch.zeros(lora.rank, into, dtype=dtype)
            self.b[target] = torch.zeros(out, lora.rank, dtype=dtype)
            nn.init.uniform_(self.a[target], -1 / math.sqrt(into), 1 / math.sqrt(into), draw)

    def forward(self, x: Tensor) -> Tensor:
        """What to add [.., rows of the layer on this rank] for what the layer takes on this rank [.., in]."""
        down = torch.cat(list(self.a.values()))
        if self.split == 1:  # ranks share the inputs
            low = F.linear(x, self._mine(_summed(down), 1))
            if self.sequence:
                low = tensor_parallel.reduce_scatter_to_sequence_parallel_region(low)
            else:
                low = tensor_parallel.reduce_from_tensor_model_parallel_region(low)
            up = {target: _summed(rows) if self.sequence else rows for target, rows in self.b.items()}
        else:  # ranks share the rows
            low = F.linear(x, _summed(down) if self.sequence else down)
            if self.sequence:
                low = tensor_parallel.gather_from_sequence_parallel_region(low)
            else:
                low = tensor_parallel.copy_to_tensor_model_parallel_region(low)
            up = {target: self._mine(_summed(rows), 0) for target, rows in self.b.items()}
        lows = zip(self.a, low.split(self.rank, -1), strict=True)
        added = {target: F.linear(part, up[target]) for target, part in lows}
        shared = self.parts if self.split == 0 else 1
        parts = [
            added[projection(hf)] if projection(hf) in added else low.new_zeros(*low.shape[:-1], size[0] // shared)
            for hf, size in self.tensors.items()
        ]
        if "linear_qkv" in self.name:
            grouped = [part.unflatten(-1, (self.arch.kv_heads // shared, -1)) for part in parts]
            return self.scale * torch.cat(grouped, -1).flatten(-2)
        return self.scale * torch.cat(parts, -1)

    def _mine(self, matrix: Tensor, dim: int) -> Tensor:
        """This tensor rank's rows or columns of a projection's matrix."""
        pieces = matrix.chunk(strips(self.name), dim) if len(self.tensors) < strips(self.name) else [matrix]
        return torch.cat([piece.chunk(self.parts, dim)[self.part] for piece in pieces], dim)

    @torch.no_grad()
    def merged(self, weight: Tensor) -> Tensor:
        """The layer's weight with what the adapter adds; the sum is fp32's."""
        parts = {
            hf: self.b[projection(hf)].float() @ self.a[projection(hf)].float()
            if projection(hf) in self.a
            else weight.new_zeros(size, dtype=torch.float32)
            for hf, size in self.tensors.items()
        }
        added = from_hf(self.name, parts, self.arch, tp_size=self.parts, tp_rank=self.part)
        return weight.float().add(added, alpha=self.scale).to(weight.dtype)  # of float32, `float` is the weight itself


def _summed(matrix: Tensor) -> Tensor:
    """`matrix`, whose gradient is the sum of all tensor ranks' parts of it."""
    summed: Tensor = tensor_parallel.copy_to_tensor_model_parallel_region(matrix)
    return summed


def peft_tensors(adapters: dict[str, Adapter]) -> dict[str, Tensor]:
    """The adapters by PEFT's names: lora_A [rank, in] and lora_B [out, rank] of each projection."""
    tensors: dict[str, Tensor] = {}
    for adapter in adapters.values():
        for hf in adapter.tensors:
            for kind, matrices in (("A", adapter.a), ("B", adapter.b)):
                if (target := projection(hf)) in matrices:
                    name = f"base_model.model.{hf.removesuffix('.weight')}.lora_{kind}.weight"
                    tensors[name] = matrices[target].detach()
    return tensors
