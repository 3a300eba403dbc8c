"""One rank's model, optimizer and reference policy, and the steps on them.

Invariant: a step is computed from whole-Take weights only, so figures and gradients do not depend on how the
samples were packed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from policy import checkpoints, hf_folder
from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.losses import Objective, grpo_terms, log_ratio
from policy.megatron import checkpoint, partition, shim
from policy.megatron.model import PackedInputs, PolicyModel, ensure_parallel
from policy.megatron.optimizer import Updater
from policy.megatron.tally import StepTally
from policy.megatron.vocab import entropy, predicted, token_logprobs
from policy.optim import OptimConfig
from policy.packing import MicroBatch
from policy.weights import to_hf
from runtime.errors import StoreError

__all__ = ["OptimConfig", "Trainer"]


class Trainer:
    """Trains the model of a Hugging Face folder; one per process."""

    def __init__(self, hf_dir: Path, config: OptimConfig, device: str | None = None) -> None:
        """Raises ConfigError when the folder holds a model that is not supported, or no weights."""
        read_architecture(hf_dir)  # a wrong architecture is a better complaint than a missing tensor
        self._prepare(hf_dir, config, device, hf_folder.read(hf_dir))

    @classmethod
    def resume(cls, folder: Path, config: OptimConfig, device: str | None = None, *, reference: bool = True) -> Trainer:
        """The trainer that `save` wrote to `folder`, without its reference policy where that is not wanted.

        Raises StoreError when the folder is not complete.
        """
        checkpoints.read_info(folder)
        trainer = cls.__new__(cls)
        trainer._prepare(folder / checkpoint.MODEL, config, device, None)
        trainer.load(folder, reference=reference)
        return trainer

    def _prepare(
        self, hf_dir: Path, config: OptimConfig, device: str | None, weights: dict[str, Tensor] | None
    ) -> None:
        self.companions = hf_folder.companions(hf_dir)
        self.config = config
        self.shape = read_architecture(hf_dir)
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

    def cross_entropy_step(
        self, micro_batches: Sequence[MicroBatch], lr: float, rehearsal: Sequence[Sequence[MicroBatch]] = ()
    ) -> dict[str, float]:
        """One optimizer step on -sum(weight * log pi).

        Figures: those of `grpo_step` that make sense without RL, and accuracy (share of trained tokens that have the
        largest logit).
        """
        return self._step(micro_batches, lr, None, rehearsal)

    def grpo_step(
        self,
        micro_batches: Sequence[MicroBatch],
        lr: float,
        objective: Objective,
        epochs: int = 1,
        rehearsal: Sequence[Sequence[MicroBatch]] = (),
    ) -> dict[str, float]:
        """`epochs` optimizer steps of GRPO, each over all samples, with pi_prox and reference from before the first.

        The cross-entropy of `rehearsal[n]` is added to the loss of the n-th. Its figures are its own, where there is
        any: rehearsal_loss (nats per token, unweighted), rehearsal_accuracy, rehearsal_s (forward and backward).

        Figures of the first pass:
        - loss, entropy (nats per token at temperature 1), kl (k3; absent without a KL term),
        - mismatch_mean and mismatch_max (|log pi / mu|, at most 20),
        - far_fraction (tokens with pi / mu outside [1 / C, C]),
        - fresh_fraction, agreement_mean and agreement_max (what sampler and learner disagree by on the same weights),
        - tokens (trained on), packed_tokens.

        Figures of all passes: clip_fraction, dual_clip_fraction, ratio_mean, ratio_max, grad_norm (mean, before
        clipping), optimizer_steps (applied), forward_s, reference_s, backward_s, optimizer_s. Also lr, and ok: 1, or 0
        where the gradients of any pass were not finite. Such a pass changed nothing. The others were applied and count
        in optimizer_steps. A figure that is not finite reads 0. Raises LearnerError when there is a KL term but no
        reference, or log-probabilities are missing.
        """
        if objective.kl_coef and self.reference is None:
            raise LearnerError("a KL term needs a reference policy, and none was set")
        return self._step(micro_batches, lr, objective, rehearsal, epochs)

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
            sums["accuracy"] += float(predicted(logits, inputs.targets).sum())
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

    def snapshot(self) -> dict[str, Tensor]:
        """Full Hugging Face tensors that later steps don't change, on the model's device."""
        held = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        tensors = to_hf(self.model.named_parameters(), self.shape, partition.gather)
        shared = {name for name, tensor in tensors.items() if tensor.untyped_storage().data_ptr() in held}
        return {name: tensor.clone() if name in shared else tensor for name, tensor in tensors.items()}

    def export(self, folder: Path, tensors: dict[str, Tensor] | None = None) -> str:
        """Write a Hugging Face folder, atomically; returns the blake2b-128 of its safetensors file, hex.

        `tensors` is a snapshot that was made already.
        """
        if tensors is None:
            tensors = to_hf(self.model.named_parameters(), self.shape, partition.gather)
        return hf_folder.write(folder, tensors, self.companions)

    def save(self, folder: Path, version: str = "0.0") -> str:
        """Write a checkpoint, atomically: weights, Adam's state, reference. Returns the digest of its files."""
        info = checkpoints.CheckpointInfo(
            version=version, has_reference=self.reference is not None, dtype=self.config.dtype
        )
        return checkpoint.save(folder, info, self.companions, self.updater, self.reference)

    def load(self, folder: Path, *, reference: bool = True) -> str:
        """Take over a checkpoint's weights, Adam's state and, where wanted, its reference; returns its version.

        Raises StoreError when the folder is not a complete checkpoint or holds numbers of another kind.
        """
        info = checkpoints.read_info(folder)
        if info.dtype != self.config.dtype:
            raise StoreError(f"{folder} holds {info.dtype}, learner.dtype says {self.config.dtype}")
        wanted = reference and info.has_reference
        checkpoint.load(folder, self.updater, self._reference_model() if wanted else None)
        if not wanted:
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

    def _step(
        self,
        micro_batches: Sequence[MicroBatch],
        lr: float,
        objective: Objective | None,
        rehearsal: Sequence[Sequence[MicroBatch]],
        epochs: int = 1,
    ) -> dict[str, float]:
        tally = StepTally()
        anchors = [_Anchors() for _ in micro_batches]
        outcomes = []
        for epoch in range(epochs):
            self.updater.zero_grad()
            for batch, anchor in zip(micro_batches, anchors, strict=True):
                inputs = PackedInputs(batch, self.device)
                if objective is None:
                    loss = self._cross_entropy(inputs, tally)
                else:
                    loss = self._grpo(inputs, objective, tally, anchor, first=epoch == 0)
                if epoch == 0:
                    tally.total("loss", float(loss.detach()))
                    tally.total("tokens", inputs.targets.numel())
                    tally.total("packed_tokens", batch.tokens)
                with tally.timed("backward_s"):
                    loss.backward()
            self._rehearse(rehearsal[epoch] if rehearsal else (), tally)
            with tally.timed("optimizer_s"):
                outcomes.append(self.updater.step(lr))
        norms = [outcome.grad_norm for outcome in outcomes if outcome.ok]
        tally.total("grad_norm", sum(norms) / len(norms) if norms else 0.0)
        tally.total("optimizer_steps", sum(outcome.ok for outcome in outcomes))
        return {**tally.figures(), "ok": float(all(outcome.ok for outcome in outcomes)), "lr": lr}

    def _rehearse(self, micro_batches: Sequence[MicroBatch], tally: StepTally) -> None:
        for batch in micro_batches:
            with tally.timed("rehearsal_s"):
                inputs = PackedInputs(batch, self.device)
                logits = self._logits(self.updater.ddp, inputs)
                logprobs = token_logprobs(logits, inputs.targets)
                tally.mean("rehearsal_loss", -logprobs.detach())
                tally.mean("rehearsal_accuracy", predicted(logits, inputs.targets))
                (-(logprobs * inputs.weights).sum()).backward()

    def _cross_entropy(self, inputs: PackedInputs, tally: StepTally) -> Tensor:
        with tally.timed("forward_s"):
            logits = self._logits(self.updater.ddp, inputs)
            loss = -(token_logprobs(logits, inputs.targets) * inputs.weights).sum()
            tally.mean("entropy", entropy(logits))
            tally.mean("accuracy", predicted(logits, inputs.targets))
        return loss

    def _grpo(
        self, inputs: PackedInputs, objective: Objective, tally: StepTally, anchors: _Anchors, *, first: bool
    ) -> Tensor:
        if inputs.behaviour.numel() != inputs.targets.numel() or bool((inputs.temperatures <= 0).any()):
            raise LearnerError("a GRPO sample needs one behaviour log-probability per token, and a temperature > 0")
        if first and objective.kl_coef:
            with tally.timed("reference_s"):
                anchors.reference = self._reference_logprobs(inputs)
        with tally.timed("forward_s"):
            logits = self._logits(self.updater.ddp, inputs)
            unit = token_logprobs(logits, inputs.targets)
            at_unit = bool((inputs.temperatures == 1.0).all())
            drawn = unit if at_unit else token_logprobs(logits, inputs.targets, inputs.temperatures)
            if first:
                anchors.proximal = drawn.detach()
            terms = grpo_terms(
                drawn,
                inputs.behaviour,
                inputs.advantages,
                objective,
                proximal=anchors.proximal,
                unit_logprobs=unit,
                reference=anchors.reference,
            )
            loss = (terms.loss * inputs.weights).sum()
            if first:
                tally.mean("entropy", entropy(logits))
                if anchors.reference is not None:
                    tally.mean("kl", terms.kl)
                _tell_mismatch(inputs, drawn.detach(), objective, tally)
            tally.mean("clip_fraction", terms.clipped)
            tally.mean("dual_clip_fraction", terms.dual_clipped)
            tally.mean("ratio_mean", terms.ratio)
            tally.peak("ratio_max", terms.ratio)
        return loss

    @torch.no_grad()
    def _reference_logprobs(self, inputs: PackedInputs) -> Tensor:
        if self.reference is None:
            raise LearnerError("no reference policy")
        return token_logprobs(self._logits(self.reference, inputs), inputs.targets)


@dataclass
class _Anchors:
    """Log-probabilities [r] that a micro-batch's later passes are held against, from before its first one."""

    proximal: Tensor | None = None
    reference: Tensor | None = None


def _tell_mismatch(inputs: PackedInputs, logprobs: Tensor, objective: Objective, tally: StepTally) -> None:
    gap = log_ratio(logprobs, inputs.behaviour).abs()
    tally.mean("mismatch_mean", gap)
    tally.peak("mismatch_max", gap)
    tally.mean("far_fraction", gap > math.log(objective.tis_cap))
    tally.mean("fresh_fraction", inputs.fresh)
    tally.mean("agreement_mean", gap[inputs.fresh])
    tally.peak("agreement_max", gap[inputs.fresh])
