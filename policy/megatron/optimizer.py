"""Megatron's data-parallel wrapper and Adam, whose state several data ranks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, utils
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, clip_grads, get_megatron_optimizer, optimizer
from megatron.core.transformer.module import Float16Module
from torch import Tensor
from torch.nn import Parameter

from policy.hf_folder import DTYPES
from policy.megatron import ON_CPU, cuda_literals
from policy.megatron.model import PolicyModel, check_shards
from policy.settings import OptimConfig


def norm(chunk: int, overflow: Tensor, lists: list[list[Tensor]], per_tensor: bool) -> tuple[Tensor, None]:
    """The 2-norm of all tensors of the first list as one, of shape (1); as `amp_C.multi_tensor_l2norm`."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(lists[0]))).reshape(1), None


def scaled(chunk: int, overflow: Tensor, lists: list[list[Tensor]], scale: float) -> None:
    """Make the second list's tensors the first's times `scale`; as `amp_C.multi_tensor_scale`."""
    read, written = lists
    if any(source is not target for source, target in zip(read, written, strict=True)):
        torch._foreach_copy_(written, read)
    if scale != 1.0:
        torch._foreach_mul_(written, scale)


def install() -> None:
    """Use them where a GPU is and Megatron has nothing better; idempotent."""
    if ON_CPU or clip_grads.l2_norm_impl is not utils.local_multi_tensor_l2_norm:
        return
    clip_grads.l2_norm_impl = norm
    for module in (clip_grads, optimizer):
        module.multi_tensor_scale_impl = scaled


def fuse(adam: Any) -> None:
    """Let torch's Adam step in one kernel where its tensors are on a GPU; before its first step."""
    for group in adam.param_groups:
        group["fused"] = all(parameter.is_cuda for parameter in group["params"]) or None


MOMENTS = ("exp_avg", "exp_avg_sq")
MAIN = "fp32_param"  # the weights that Adam steps where the model's are bf16


@dataclass(frozen=True)
class StepOutcome:
    """What the optimizer did."""

    ok: bool  # False: gradients were not finite and nothing changed
    grad_norm: float  # before clipping


class Updater:
    """A model under Megatron's DDP with its optimizer."""

    def __init__(self, model: PolicyModel, config: OptimConfig) -> None:
        """Raises LearnerError when a weight of `model` does not say how it is split over ranks."""
        check_shards(model)
        dtype = DTYPES[config.dtype]
        wrapped = Float16Module(model.config, model) if model.config.bf16 else model
        self.config = config
        self.model = model
        shared = parallel_state.get_data_parallel_world_size() > 1
        self.ddp = DistributedDataParallel(
            model.config,
            DistributedDataParallelConfig(
                grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=shared
            ),
            wrapped,
        )
        self.ddp.broadcast_params()
        with cuda_literals():
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
                    use_distributed_optimizer=shared,
                ),
                [self.ddp],
            )
        (self._adam,) = getattr(self.optimizer, "chained_optimizers", [self.optimizer])
        self._moves = model.config.bf16 and not ON_CPU  # in fp32 Adam's weights are the model's own
        self._rests = False
        install()
        fuse(self._adam.optimizer)

    def trained(self) -> list[tuple[str, Parameter]]:
        """The parameters that have a gradient, by name: all, or the adapters."""
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def zero_grad(self) -> None:
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
        with cuda_literals():
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

    def fresh(self) -> None:
        """Reset Adam's moments and step counts in place; weights stay."""
        self._adam.optimizer.state.clear()

    def rest(self) -> None:
        """Free gradients and a GPU's cache, and in bfloat16 move Adam's state to the host, until `wake`."""
        self._rests = True
        self.optimizer.zero_grad()
        for buffer in self.ddp.buffers:  # views of it stay, and are of no use until it has memory again
            buffer.grad_data.untyped_storage().resize_(0)
        if self._moves:
            self.optimizer.offload_to_cpu()
        torch.cuda.empty_cache()  # with what activations have left

    def wake(self) -> None:
        if not self._rests:
            return
        self._rests = False
        for buffer in self.ddp.buffers:
            buffer.grad_data.untyped_storage().resize_(buffer.grad_data.nbytes)
            buffer.grad_data.zero_()
        if self._moves:
            self.optimizer.restore_from_cpu()

    @property
    def steps(self) -> float:
        """How often Adam has stepped; all parameters step together."""
        return max((float(state["step"]) for state in self._adam.optimizer.state.values() if state), default=0.0)

    @torch.no_grad()
    def state_of(self, parameter: Parameter) -> dict[str, Tensor]:
        """Adam's state of `parameter`, each tensor of its shape, in fp32; every data rank calls this.

        Moments, and the weights that Adam steps where they are not the parameter's own. Zeros before the first step.
        What is put together of several data ranks' parts lies in the host's memory.
        """
        stepped, part_here = self._stepped(parameter)
        state = {} if stepped is None else self._adam.optimizer.state[stepped]
        parts = {name: state.get(name) for name in MOMENTS}
        if self.model.config.bf16:
            parts[MAIN] = stepped
        whole = {}
        for name, part in parts.items():
            if part_here is None:
                whole[name] = torch.zeros_like(parameter, dtype=torch.float32) if part is None else part.detach()
                continue
            flat = torch.zeros(parameter.numel(), dtype=torch.float32, device=parameter.device)
            if part is not None:
                flat[part_here] = part
            dist.all_reduce(flat, group=parallel_state.get_data_parallel_group())
            whole[name] = flat.view_as(parameter).cpu()
        return whole

    def blank(self, parameter: Parameter) -> dict[str, Tensor]:
        """Room in the host's memory for what `state_of` gives."""
        names = (*MOMENTS, MAIN) if self.model.config.bf16 else MOMENTS
        return {name: torch.zeros(parameter.shape) for name in names}

    @torch.no_grad()
    def restore(self, parameter: Parameter, whole: dict[str, Tensor], steps: float) -> None:
        """Take over what `state_of` gave for `parameter` at some layout of ranks, after `steps` steps."""
        stepped, part_here = self._stepped(parameter)
        if stepped is None:
            return
        parts = {name: tensor if part_here is None else tensor.reshape(-1)[part_here] for name, tensor in whole.items()}
        if MAIN in parts:
            stepped.copy_(parts[MAIN])
        # A part is copied, else it would keep all of its tensor.
        moments = {name: parts[name].to(stepped.device, copy=part_here is not None) for name in MOMENTS}
        # Adam's kernel for a GPU reads the count there.
        counted = torch.tensor(steps, device=stepped.device if stepped.is_cuda else None)
        self._adam.optimizer.state[stepped] = {"step": counted, **moments}

    def _stepped(self, parameter: Parameter) -> tuple[Tensor | None, slice | None]:
        """The tensor that Adam steps here for `parameter`, and which of its elements that are; None for all of them."""
        if not self.ddp.ddp_config.use_distributed_optimizer:
            return (parameter.main_param if self.model.config.bf16 else parameter), None  # type: ignore[attr-defined]
        if parameter not in self._adam.model_param_group_index_map:  # other data ranks hold all of it
            return None, slice(0, 0)
        group, place = self._adam.model_param_group_index_map[parameter]
        elements = self._adam._get_model_param_range_map(parameter)["param"]
        return self._adam.optimizer.param_groups[group]["params"][place], slice(elements.start, elements.end)
