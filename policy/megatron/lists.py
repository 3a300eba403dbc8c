"""What an optimizer's step does to all tensors at once, by torch's kernels for lists of tensors.

Invariant: the results are those of Megatron's own fallbacks. Where neither apex nor Transformer Engine is there, these
ask the GPU for the norm of each tensor, and it waits for the program hundreds of times a step. A CPU keeps them.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import utils
from megatron.core.optimizer import clip_grads, optimizer
from torch import Tensor

from policy.megatron import shim


def norm(chunk: int, overflow: Tensor, lists: list[list[Tensor]], per_tensor: bool) -> tuple[Tensor, None]:
    """The 2-norm of all tensors of the first list as one, of shape (1); as `amp_C.multi_tensor_l2norm`."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(lists[0]))).reshape(1), None


def scaled(chunk: int, overflow: Tensor, lists: list[list[Tensor]], scale: float) -> None:
    """Make the second list's tensors the first's times `scale`; as `amp_C.multi_tensor_scale`."""
    read, written = lists
    if any(one is not other for one, other in zip(read, written, strict=True)):
        torch._foreach_copy_(written, read)
    if scale != 1.0:
        torch._foreach_mul_(written, scale)


def install() -> None:
    """Use them where a GPU is and Megatron has nothing better; idempotent."""
    if shim.ON_CPU or clip_grads.l2_norm_impl is not utils.local_multi_tensor_l2_norm:
        return
    clip_grads.l2_norm_impl = norm
    for module in (clip_grads, optimizer):
        module.multi_tensor_scale_impl = scaled


def fuse(adam: Any) -> None:
    """Let torch's Adam step in one kernel where its tensors are on a GPU; before its first step."""
    for group in adam.param_groups:
        group["fused"] = all(parameter.is_cuda for parameter in group["params"]) or None
