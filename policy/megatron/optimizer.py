"""Megatron's data-parallel wrapper and Adam.

Invariant: gradients are summed over micro-batches and ranks, never averaged. A step uses the learning rate that is
given with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.module import Float16Module

from policy.megatron import partition, shim
from policy.megatron.config import DTYPES
from policy.megatron.model import PolicyModel
from policy.optim import OptimConfig


@dataclass(frozen=True)
class StepOutcome:
    """What the optimizer did."""

    ok: bool  # False: gradients were not finite and nothing changed
    grad_norm: float  # before clipping


class Updater:
    """A model under Megatron's DDP with its optimizer."""

    def __init__(self, model: PolicyModel, config: OptimConfig) -> None:
        """Raises LearnerError when a weight of `model` does not say how it is split over ranks."""
        partition.check(model)
        dtype = DTYPES[config.dtype]
        wrapped = Float16Module(model.config, model) if model.config.bf16 else model
        self.config = config
        self.model = model
        self.ddp = DistributedDataParallel(
            model.config,
            DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False),
            wrapped,
        )
        self.ddp.broadcast_params()
        with shim.cuda_literals():
            self.optimizer: Any = get_megatron_optimizer(
                OptimizerConfig(
                    optimizer="adam",
                    lr=1.0,  # every step sets its own
                    weight_decay=config.weight_decay,
                    adam_beta1=config.betas[0],
                    adam_beta2=config.betas[1],
                    adam_eps=config.eps,
                    clip_grad=config.clip_grad,
                    bf16=model.config.bf16,
                    params_dtype=dtype,
                ),
                [self.ddp],
            )

    def zero_grad(self) -> None:
        """Forget gradients; call before a step's first micro-batch."""
        self.ddp.zero_grad_buffer()
        self.optimizer.zero_grad()

    def step(self, lr: float) -> StepOutcome:
        """Sum gradients over ranks, clip their norm, and apply Adam with `lr`; nothing where they are not finite."""
        finalize_model_grads([self.ddp])
        if not self._finite():
            return StepOutcome(ok=False, grad_norm=0.0)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_mult", 1.0)
            group["weight_decay"] = self.config.weight_decay * group.get("wd_mult", 1.0)
            group["betas"] = self.config.betas  # a checkpoint's groups hold those it was written with
        with shim.cuda_literals():
            ok, grad_norm, _ = self.optimizer.step()
        return StepOutcome(ok=bool(ok), grad_norm=float(grad_norm or 0.0))

    def _finite(self) -> bool:
        # Megatron's fp32 optimizer does not look, and would spread one bad value over all weights. A NaN is both ends
        # at once; `isfinite` of all would allocate 1.75 times the gradients.
        ends = [end for buffer in self.ddp.buffers for end in buffer.grad_data.aminmax()]
        finite = torch.stack(ends).isfinite().all()
        if dist.get_world_size() > 1:
            votes = finite.float()
            dist.all_reduce(votes, dist.ReduceOp.MIN)
            finite = votes
        return bool(finite)

    def inner(self) -> list[Any]:
        """The torch optimizers inside Megatron's."""
        return [chained.optimizer for chained in getattr(self.optimizer, "chained_optimizers", [self.optimizer])]

    def fresh(self) -> None:
        """Reset Adam's moments and step counts in place; weights stay."""
        for optimizer in self.inner():
            optimizer.state.clear()

    def prime(self) -> None:
        """Give parameters that were never stepped the state Adam starts from, so that it can be saved or loaded."""
        for optimizer in self.inner():
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if not optimizer.state[parameter]:
                    optimizer.state[parameter].update(
                        step=torch.tensor(0.0),
                        exp_avg=torch.zeros_like(parameter.data),
                        exp_avg_sq=torch.zeros_like(parameter.data),
                    )

    def own_steps(self) -> None:
        """Un-share step counts after a load: Megatron gives all parameters one tensor, and each would advance it."""
        for optimizer in self.inner():
            for state in optimizer.state.values():
                if torch.is_tensor(state.get("step")):
                    state["step"] = state["step"].clone()
