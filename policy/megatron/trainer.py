"""One rank's model, optimizer and reference policy, and the steps on them.

Invariant: a step is computed from whole-Take weights only, so figures and gradients do not depend on how the
samples were packed.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from policy import checkpoints, hf_folder
from policy.losses import Objective, grpo_terms
from policy.megatron import checkpoint, shim
from policy.megatron.config import read_shape
from policy.megatron.model import PackedInputs, PolicyModel, ensure_parallel
from policy.megatron.optimizer import Updater
from policy.megatron.vocab import entropy, token_logprobs
from policy.optim import OptimConfig
from policy.packing import MicroBatch
from policy.weights import to_hf
from runtime.errors import LearnerError

__all__ = ["OptimConfig", "Trainer"]


class Trainer:
    """Trains the model of a Hugging Face folder; one per process."""

    def __init__(self, hf_dir: Path, config: OptimConfig, device: str | None = None) -> None:
        """Raises ConfigError when the folder holds a model that is not supported, or no weights."""
        read_shape(hf_dir)  # a wrong architecture is a better complaint than a missing tensor
        self._prepare(hf_dir, config, device, hf_folder.read(hf_dir))

    @classmethod
    def resume(cls, folder: Path, config: OptimConfig, device: str | None = None) -> Trainer:
        """The trainer that `save` wrote to `folder`. Raises StoreError when the folder is not complete."""
        checkpoints.read_info(folder)
        trainer = cls.__new__(cls)
        trainer._prepare(folder / checkpoint.MODEL, config, device, None)
        trainer.load(folder)
        return trainer

    def _prepare(
        self, hf_dir: Path, config: OptimConfig, device: str | None, weights: dict[str, Tensor] | None
    ) -> None:
        self.companions = hf_folder.companions(hf_dir)
        self.config = config
        self.shape = read_shape(hf_dir)
        self.device = torch.device(device or ("cpu" if shim.ON_CPU else "cuda"))
        ensure_parallel(config.seed)
        self.model = PolicyModel(self.shape, config.dtype)
        if weights is not None:
            self.model.load_hf(weights, self.shape)
        self.updater = Updater(self.model.to(self.device), config)
        self.reference: PolicyModel | None = None
        self.loaded_version = ""  # of the checkpoint that was loaded

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def cross_entropy_step(self, micro_batches: Sequence[MicroBatch], lr: float) -> dict[str, float]:
        """One optimizer step on -sum(weight * log pi); figures as `grpo_step`'s, without the RL ones."""
        return self._step(micro_batches, lr, None)

    def grpo_step(self, micro_batches: Sequence[MicroBatch], lr: float, objective: Objective) -> dict[str, float]:
        """One optimizer step of step-level GRPO.

        Figures: loss, grad_norm, ok (1, or 0 where gradients were not finite: nothing changed, and figures that are
        not finite read 0), entropy (nats per token at temperature 1), kl, clip_fraction, mismatch (mean
        |log pi / mu|), ratio_max, tokens (trained on), packed_tokens, forward_s, backward_s, optimizer_s.
        Raises LearnerError when there is a KL term but no reference, or log-probabilities are missing.
        """
        if objective.kl_coef and self.reference is None:
            raise LearnerError("a KL term needs a reference policy, and none was set")
        return self._step(micro_batches, lr, objective)

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Weighted loss, entropy, and share of trained tokens whose arg-max is right (`accuracy`); changes nothing."""
        sums: dict[str, float] = defaultdict(float)
        for batch in micro_batches:
            inputs = PackedInputs(batch, self.device)
            logits = self._logits(self.model, inputs)
            logprobs = token_logprobs(logits, inputs.targets)
            sums["loss"] -= float((logprobs * inputs.weights).sum())
            sums["entropy"] += float(entropy(logits).sum())
            sums["accuracy"] += float((logits.argmax(-1) == inputs.targets).sum())
            sums["tokens"] += inputs.targets.numel()
        count = max(sums["tokens"], 1.0)
        return {**sums, "entropy": sums["entropy"] / count, "accuracy": sums["accuracy"] / count}

    @torch.no_grad()
    def logits(self, micro_batch: MicroBatch) -> list[Tensor]:
        """Logits [response_len, vocab] of every sample's trained tokens, in the micro-batch's order."""
        inputs = PackedInputs(micro_batch, self.device)
        return inputs.by_sample(self._logits(self.model, inputs))

    @torch.no_grad()
    def logprobs(self, micro_batch: MicroBatch) -> list[list[float]]:
        """Log-probabilities of every sample's trained tokens at its temperature, in the micro-batch's order."""
        inputs = PackedInputs(micro_batch, self.device)
        values = token_logprobs(self._logits(self.model, inputs), inputs.targets, inputs.temperatures)
        return [part.tolist() for part in inputs.by_sample(values)]

    def fresh_optimizer(self) -> None:
        """Forget Adam's state; weights and reference stay."""
        self.updater.fresh()

    def new_reference(self) -> None:
        """The current weights become the reference policy."""
        self._reference_model().load_state_dict(self.model.state_dict())

    def export(self, folder: Path) -> str:
        """Write a Hugging Face folder, atomically; returns the blake2b-128 of its safetensors file, hex."""
        return hf_folder.write(folder, to_hf(self.model.named_parameters(), self.shape), self.companions)

    def save(self, folder: Path, version: str = "0.0") -> None:
        """Write a checkpoint, atomically: weights, Adam's state, reference."""
        info = checkpoints.CheckpointInfo(
            version=version, has_reference=self.reference is not None, dtype=self.config.dtype
        )
        checkpoint.save(folder, info, self.companions, self.updater, self.reference)

    def load(self, folder: Path) -> str:
        """Take over a checkpoint's weights, Adam's state and reference; returns its version.

        Raises StoreError when the folder is not a complete checkpoint.
        """
        info = checkpoints.read_info(folder)
        checkpoint.load(folder, self.updater, self._reference_model() if info.has_reference else None)
        if not info.has_reference:
            self.reference = None
        self.loaded_version = info.version
        return info.version

    def _reference_model(self) -> PolicyModel:
        if self.reference is None:
            self.reference = PolicyModel(self.shape, self.config.dtype).to(self.device)
            self.reference.requires_grad_(requires_grad=False)
        return self.reference

    def _logits(self, model: torch.nn.Module, inputs: PackedInputs) -> Tensor:
        logits: Tensor = model(inputs.ids, inputs.positions, inputs.packed)
        return logits

    def _step(self, micro_batches: Sequence[MicroBatch], lr: float, objective: Objective | None) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        peaks: dict[str, float] = {}
        self.updater.zero_grad()
        for batch in micro_batches:
            began = time.perf_counter()
            loss = self._forward(PackedInputs(batch, self.device), objective, sums, peaks)
            sums["packed_tokens"] += batch.tokens
            between = time.perf_counter()
            loss.backward()
            sums["forward_s"] += between - began
            sums["backward_s"] += time.perf_counter() - between
        began = time.perf_counter()
        outcome = self.updater.step(lr)
        sums["optimizer_s"] = time.perf_counter() - began
        count = max(sums["tokens"], 1.0)
        means = {key: sums[key] / count for key in ("entropy", "kl", "clip_fraction", "mismatch") if key in sums}
        figures = {**sums, **means, **peaks, "grad_norm": outcome.grad_norm, "ok": float(outcome.ok), "lr": lr}
        return {name: value if math.isfinite(value) else 0.0 for name, value in figures.items()}

    def _forward(
        self, inputs: PackedInputs, objective: Objective | None, sums: dict[str, float], peaks: dict[str, float]
    ) -> Tensor:
        logits = self._logits(self.updater.ddp, inputs)
        unit = token_logprobs(logits, inputs.targets)
        sums["tokens"] += inputs.targets.numel()
        sums["entropy"] += float(entropy(logits).sum())
        if objective is None:
            token_loss = -unit
        else:
            if inputs.behaviour.numel() != inputs.targets.numel() or bool((inputs.temperatures <= 0).any()):
                raise LearnerError("a GRPO sample needs one behaviour log-probability per token, and a temperature > 0")
            at_unit = bool((inputs.temperatures == 1.0).all())
            drawn = unit if at_unit else token_logprobs(logits, inputs.targets, inputs.temperatures)
            terms = grpo_terms(
                drawn,
                inputs.behaviour,
                inputs.advantages,
                objective,
                unit_logprobs=unit,
                reference=self._reference_logprobs(inputs) if objective.kl_coef else None,
            )
            token_loss = terms.loss
            sums["kl"] += float(terms.kl.sum())
            sums["clip_fraction"] += float(terms.clipped.sum())
            sums["mismatch"] += float((drawn.detach() - inputs.behaviour).abs().sum())
            peaks["ratio_max"] = max(peaks.get("ratio_max", 0.0), float(terms.ratio.max()))
        loss = (token_loss * inputs.weights).sum()
        sums["loss"] += float(loss.detach())
        return loss

    @torch.no_grad()
    def _reference_logprobs(self, inputs: PackedInputs) -> Tensor:
        if self.reference is None:
            raise LearnerError("no reference policy")
        return token_logprobs(self._logits(self.reference, inputs), inputs.targets)
