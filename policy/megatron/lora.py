"""Low-rank adapters beside a model's frozen linear layers.

Invariant: without its adapters a model computes what it did before. The reference policy is the same model with the
adapters as they were when it was set (none at first), so it costs no weights of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from torch import Tensor, nn

from policy.architecture import Architecture
from policy.lora import LoraConfig, projection
from policy.tensornames import held
from policy.weights import from_hf

if TYPE_CHECKING:
    from policy.megatron.model import PolicyModel

MARK = ".lora."  # in the names of parameters that no model folder has


class Adapter(nn.Module):
    """What is added to one of Megatron's linear layers: scale * B A x of its projections, in that layer's order."""

    def __init__(self, name: str, lora: LoraConfig, arch: Architecture, dtype: torch.dtype, draw: torch.Generator):
        """`name` is that of the layer's weight in any layer. A is drawn as PEFT draws it, and B is zero."""
        super().__init__()
        self.name, self.rank, self.scale, self.arch = name, lora.rank, lora.alpha / lora.rank, arch
        self.tensors = held(name, arch).tensors
        self.of_reference = False
        sizes = {projection(hf): size for hf, size in lora.adapted(arch)[name.split(".", 3)[3]].items()}
        for kind in ("", "reference_"):
            a, b = nn.ParameterDict(), nn.ParameterDict()
            for target, (out, into) in sizes.items():
                a[target] = torch.zeros(lora.rank, into, dtype=dtype)
                b[target] = torch.zeros(out, lora.rank, dtype=dtype)
                if not kind:
                    nn.init.uniform_(a[target], -1 / math.sqrt(into), 1 / math.sqrt(into), draw)
            self.add_module(f"{kind}a", a)
            self.add_module(f"{kind}b", b)
            for parameters in (a, b):
                parameters.requires_grad_(requires_grad=not kind)

    def _matrices(self) -> tuple[nn.ParameterDict, nn.ParameterDict]:
        kind = "reference_" if self.of_reference else ""
        return self.get_submodule(f"{kind}a"), self.get_submodule(f"{kind}b")  # type: ignore[return-value]

    def forward(self, x: Tensor) -> Tensor:
        """What to add [.., rows of the layer] for its inputs [.., in]."""
        a, b = self._matrices()
        low = F.linear(x, torch.cat(list(a.values()))).split(self.rank, -1)
        found = {target: F.linear(part, b[target]) for target, part in zip(a, low, strict=True)}
        parts = [
            found[projection(hf)] if projection(hf) in found else x.new_zeros(*x.shape[:-1], size[0])
            for hf, size in self.tensors.items()
        ]
        if "linear_qkv" in self.name:
            grouped = [part.unflatten(-1, (self.arch.kv_heads, -1)) for part in parts]
            return self.scale * torch.cat(grouped, -1).flatten(-2)
        return self.scale * torch.cat(parts, -1)

    @torch.no_grad()
    def merged(self, weight: Tensor) -> Tensor:
        """The layer's weight with what the adapter adds; the sum is fp32's."""
        a, b = self._matrices()
        parts = {
            hf: b[projection(hf)].float() @ a[projection(hf)].float()
            if projection(hf) in a
            else weight.new_zeros(size, dtype=torch.float32)
            for hf, size in self.tensors.items()
        }
        added = from_hf(self.name, parts, self.arch)
        return weight.float().add(added, alpha=self.scale).to(weight.dtype)  # of float32, `float` is the weight itself


def attach(model: PolicyModel, lora: LoraConfig, seed: int) -> dict[str, Adapter]:
    """Freeze `model` and give it adapters, which are returned by the names of the weights that they add to."""
    model.requires_grad_(requires_grad=False)
    draw, adapters = torch.Generator().manual_seed(seed), {}
    for name, parameter in list(model.named_weights()):
        if name.startswith("decoder.layers.") and name.split(".", 3)[3] in lora.adapted(model.shape):
            linear = model.get_submodule(name.removesuffix(".weight"))
            linear.lora = adapters[name] = Adapter(name, lora, model.shape, parameter.dtype, draw)
            linear.register_forward_hook(_add)
    # Megatron computes a layer again only where its input has a gradient, and a frozen embedding's output has none.
    model.embedding.register_forward_hook(lambda *called: called[2].requires_grad_(torch.is_grad_enabled()))
    return adapters


def _add(linear: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    return output[0] + linear.lora(inputs[0]), output[1]


@torch.no_grad()
def keep_reference(adapters: dict[str, Adapter]) -> None:
    """The adapters as they are become the reference policy's."""
    for adapter in adapters.values():
        for kind in "ab":
            kept = dict(adapter.get_submodule(f"reference_{kind}").named_parameters())
            for name, parameter in adapter.get_submodule(kind).named_parameters():
                kept[name].copy_(parameter)


@contextmanager
def as_reference(adapters: dict[str, Adapter]) -> Iterator[None]:
    """The model computes as the reference policy inside."""
    for adapter in adapters.values():
        adapter.of_reference = True
    try:
        yield
    finally:
        for adapter in adapters.values():
            adapter.of_reference = False


def peft_tensors(adapters: dict[str, Adapter]) -> dict[str, Tensor]:
    """The adapters by PEFT's names: lora_A [rank, in] and lora_B [out, rank] of each projection."""
    found: dict[str, Tensor] = {}
    for adapter in adapters.values():
        for hf in adapter.tensors:
            for kind in "ab":
                matrices = adapter.get_submodule(kind)
                if (target := projection(hf)) in matrices:  # type: ignore[operator]
                    name = f"base_model.model.{hf.removesuffix('.weight')}.lora_{kind.upper()}.weight"
                    found[name] = matrices[target].detach()  # type: ignore[index]
    return found
