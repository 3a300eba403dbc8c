"""One rank's part of the model, optimizer and reference policy, and the steps on them.

A step is computed from weights of the whole batch only. Figures and gradients do not depend on how the samples were
packed, dealt out to data ranks, or on how the model is split. All ranks call the same methods in the same order, and
all get the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import torch
from megatron.core import parallel_state
from torch import Tensor
from torch.nn import Parameter

from policy import checkpoints, hf_folder, tensorfiles
from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.megatron import ON_CPU, checkpoint, lora
from policy.megatron import objective as losses
from policy.megatron.layers import PackedInputs
from policy.megatron.model import Kept, MicroBatchRunner, PolicyModel, whole_tensors
from policy.megatron.objective import VocabRows
from policy.megatron.optimizer import Updater
from policy.megatron.ranks import StepTally, ensure_parallel, exchanged, on_first
from policy.packing import MicroBatch, deal
from policy.pictures import style_of
from policy.settings import Objective, OptimConfig, ParallelConfig
from policy.vision.eyes import eyes_of
from runtime.errors import ConfigError, StoreError


class ReferencePolicy:
    """A copy of a rank's trained parameters, pinned where those are on a GPU."""

    @torch.no_grad()
    def __init__(self, trained: Sequence[tuple[str, Parameter]]) -> None:
        """`trained` are the parameters by name, which have one dtype; the copy is of what they are now."""
        (dtype,) = {parameter.dtype for _, parameter in trained}
        sizes = [parameter.numel() for _, parameter in trained]
        # All in one piece: torch may round what it pins up to a power of two, each time that it is asked.
        room = torch.empty(sum(sizes), dtype=dtype, pin_memory=trained[0][1].is_cuda)
        self._trained = dict(trained)
        parts = zip(self._trained.items(), room.split(sizes), strict=True)
        self.weights = {name: part.view_as(parameter).copy_(parameter) for (name, parameter), part in parts}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model computes as the reference policy inside, where no gradient is taken.

        A tensor at a time changes places, so the device holds one of them more.
        """
        with ExitStack() as back:
            for name, kept in self.weights.items():
                _exchange(self._trained[name], kept)
                back.callback(_exchange, self._trained[name], kept)
            yield


@torch.no_grad()
def _exchange(weight: Tensor, kept: Tensor) -> None:
    own = weight.clone()
    weight.copy_(kept)
    kept.copy_(own)


__all__ = ["OptimConfig", "Trainer"]


class Trainer:
    """Trains the model of a Hugging Face folder, with the other ranks where there are; one per process."""

    def __init__(
        self,
        hf_dir: Path,
        config: OptimConfig,
        device: str | None = None,
        *,
        parallel: ParallelConfig | None = None,
        weights: bool = True,
    ) -> None:
        """Raises ConfigError when the folder holds a model that is not supported or can't be split so, or no weights.

        Without `weights` the model waits for `load`. Ranks have met before (`policy.megatron.ranks`).
        """
        self.shape = read_architecture(hf_dir)  # a wrong architecture is a better complaint than a missing tensor
        self.parallel = parallel or ParallelConfig()
        self.companions = hf_folder.companions(hf_dir)
        self.config = config
        self.device = torch.device(device or ("cpu" if ON_CPU else "cuda"))
        if config.attention == "flex" and self.device.type == "cpu":
            raise ConfigError("learner.attention is flex, which torch trains with on a GPU alone: leave it at sdpa")
        self.parallel.refuse(self.shape)
        ensure_parallel(config.seed, self.parallel)
        self.model = PolicyModel(self.shape, config.dtype, self.parallel, config.recompute)
        if weights:
            self.model.load_hf(hf_folder.read(hf_dir), self.shape)
        if config.lora.rank:
            self.model.adapt(config.lora, config.seed)
        self.style, self.eyes = style_of(hf_dir), None
        if parallel_state.is_pipeline_first_stage():
            tower = hf_folder.tower_of(self.companions)
            self.eyes = eyes_of(self.style, self.shape, tower, hf_folder.DTYPES[config.dtype], self.device)
        if config.vision != "frozen":
            if self.eyes is None:
                raise ConfigError(f"learner.vision is {config.vision}, and {hf_dir} is a model that reads text alone")
            self.eyes.train(config.vision)
            self.model.visual = self.eyes.tower
        self.updater = Updater(self.model.to(self.device), config)
        self._training = self._runner(self.updater.ddp)
        self.reference: ReferencePolicy | None = None
        self.loaded_version = ""  # of the checkpoint that was loaded

    @classmethod
    def resume(
        cls,
        folder: Path,
        config: OptimConfig,
        device: str | None = None,
        *,
        reference: bool = True,
        parallel: ParallelConfig | None = None,
    ) -> Trainer:
        """The trainer that `save` wrote to `folder`, without its reference policy where that is not wanted.

        `parallel` need not be that of the ranks that saved it. Raises StoreError when the folder is not complete.
        """
        checkpoints.read_info(folder)
        trainer = cls(folder / checkpoint.MODEL, config, device, parallel=parallel, weights=False)
        trainer.load(folder, reference=reference)
        return trainer

    @property
    def parameters(self) -> int:
        return sum(math.prod(size) for size in tensorfiles.expected(self.shape).values())

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
        - effective_samples (share of the tokens that as many with equal ratios pi / mu would be worth),
        - fresh_fraction, agreement_mean and agreement_max (what sampler and learner disagree by on the same weights),
        - tokens (trained on), packed_tokens.

        Figures of all passes: clip_fraction, dual_clip_fraction, masked_fraction (with a mask), ratio_mean, ratio_max,
        grad_norm (mean, before clipping), optimizer_steps (applied), forward_s, reference_s, backward_s, optimizer_s.
        Also lr, and ok: 1, or 0 where the gradients of any pass were not finite. Such a pass changed nothing. The
        others were applied and count in optimizer_steps. A figure that is not finite reads 0. Raises LearnerError when
        there is a KL term but no reference, or log-probabilities are missing.
        """
        # Looked at before any rank waits for another.
        for sample in (sample for batch in micro_batches for sample in batch.samples):
            if len(sample.behaviour_logprobs) != sample.response_len or sample.temperature <= 0:
                raise LearnerError("a GRPO sample needs one behaviour log-probability per token, and a temperature > 0")
        return self._step(micro_batches, lr, objective, rehearsal, epochs)

    def evaluate(self, micro_batches: Sequence[MicroBatch]) -> dict[str, float]:
        """Weighted loss, entropy, and share of trained tokens whose arg-max is right (`accuracy`); changes nothing."""
        tally = StepTally()

        def read(inputs: PackedInputs, rows: VocabRows) -> None:
            tally.total("loss", losses.cross_entropy(inputs, rows, tally))
            tally.total("tokens", inputs.targets.numel())

        self._runner(self.model).read(self._dealt(micro_batches), read)
        tally.reduce()
        return tally.figures()

    def logprobs(self, micro_batch: MicroBatch) -> list[list[float]]:
        """Log-probabilities of every sample's trained tokens at its temperature, in the micro-batch's order.

        Every rank calls this, and gets them.
        """

        def read(inputs: PackedInputs, rows: VocabRows) -> list[list[float]]:
            drawn = rows.scores(inputs.targets, inputs.temperatures).drawn
            return [part.tolist() for part in inputs.by_sample(drawn)]

        values = self._runner(self.model).read([micro_batch], read)
        if self.parallel.pipeline > 1:
            parts = exchanged(msgspec.msgpack.encode(values))
            values = msgspec.msgpack.decode(max(parts, key=len), type=list[list[list[float]]])
        return values[0]

    def fresh_optimizer(self) -> None:
        self.updater.fresh()

    def new_reference(self) -> None:
        self.reference = None  # which gives its memory to the next one
        self.reference = ReferencePolicy(self.updater.trained())

    def snapshot(self, *, on_host: bool = False) -> dict[str, Tensor]:
        """Full Hugging Face tensors that later steps don't change, on the model's device or the host: rank 0's alone.

        Every rank calls this.
        """
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        tensors = whole_tensors(self.model, self.shape, on_host=on_host)
        shared = {name for name, tensor in tensors.items() if tensor.untyped_storage().data_ptr() in own}
        return {name: tensor.clone() if name in shared else tensor for name, tensor in tensors.items()}

    def export(self, folder: Path, tensors: dict[str, Tensor] | None = None) -> str:
        """Write a Hugging Face folder, atomically; returns the digest of its safetensors file.

        `tensors` is a snapshot that was made already. Every rank calls this, and rank 0 writes.
        """
        whole = whole_tensors(self.model, self.shape, on_host=True) if tensors is None else tensors
        peft = self._peft() if self.config.lora.rank else None
        return on_first(lambda: hf_folder.write(folder, whole, self.companions, peft).encode()).decode()

    def export_adapter(self, folder: Path) -> str:
        """Write the adapter alone, in PEFT's form; returns the digest of its tensors. Every rank calls this."""
        return on_first(lambda: hf_folder.write_adapter(folder, *self._peft()).encode()).decode()

    def _peft(self) -> tuple[object, dict[str, Tensor]]:
        return self.config.lora.peft(self.shape), lora.peft_tensors(self.model.adapters)

    def write(self, folder: Path, tensors: dict[str, Tensor]) -> str:
        """The same of a snapshot alone, by rank 0 while the others work: an adapter has gone on."""
        return hf_folder.write(folder, tensors, self.companions)

    def save(self, folder: Path, version: str = "0.0") -> str:
        """Write a checkpoint, atomically: weights, Adam's state, reference. Returns the digest of its files."""
        info = checkpoints.CheckpointInfo(
            version=version,
            has_reference=self.reference is not None,
            dtype=self.config.dtype,
            lora=self.config.lora,
            vision=self.config.vision,
        )
        return checkpoint.save(folder, info, self.companions, self.updater, self._reference_weights)

    def load(self, folder: Path, *, reference: bool = True) -> str:
        """Take over a checkpoint's weights, Adam's state and, where wanted, its reference; returns its version.

        Raises StoreError when the folder is not a complete checkpoint or holds numbers of another kind.
        """
        info = checkpoints.read_info(folder)
        for saved, wanted in zip(_kind(info), _kind(self.config), strict=True):
            if saved != wanted:
                raise StoreError(f"{folder} was trained with {saved}, the deploy file says {wanted}")
        self.reference = None
        if reference and info.has_reference:
            self.new_reference()  # whose weights are read next
        checkpoint.load(folder, self.updater, self._reference_weights)
        self.loaded_version = info.version
        return info.version

    @property
    def _reference_weights(self) -> dict[str, Tensor]:
        return {} if self.reference is None else self.reference.weights

    def _step(
        self,
        micro_batches: Sequence[MicroBatch],
        lr: float,
        objective: Objective | None,
        rehearsal: Sequence[Sequence[MicroBatch]],
        epochs: int = 1,
    ) -> dict[str, float]:
        tally, mine = StepTally(), self._dealt(micro_batches)
        anchors = [losses.Anchors() for _ in mine]
        reference = objective is not None and objective.kl_coef > 0
        # Not of pictures, whose embeddings are large, and kept where they are made.
        kept: Kept | None = {} if (reference or epochs > 1) and self.style is None else None
        if reference:
            with tally.timed("reference_s"):
                for anchor, logprobs in zip(anchors, self._reference_logprobs(mine, kept), strict=False):
                    anchor.reference = logprobs

        def loss(number: int, inputs: PackedInputs, rows: VocabRows) -> Tensor:
            if objective is None:
                value = losses.cross_entropy(inputs, rows, tally)
            else:
                value = losses.grpo(inputs, rows, tally, objective, anchors[number], first=epoch == 0)
            if epoch == 0:
                tally.total("loss", value)
                tally.total("tokens", inputs.targets.numel())
                tally.total("packed_tokens", mine[number].tokens)
            return value

        outcomes = []
        self.updater.wake()
        for epoch in range(epochs):
            self.updater.zero_grad()
            self._training.train(mine, loss, tally, kept=kept)
            self._training.train(
                self._dealt(rehearsal[epoch]) if rehearsal else (),
                lambda _, inputs, rows: losses.rehearsal(inputs, rows, tally),
                tally,
                "rehearsal_s",
                "rehearsal_s",
            )
            with tally.timed("optimizer_s"):
                outcomes.append(self.updater.step(lr))
        tally.reduce()
        norms = [outcome.grad_norm for outcome in outcomes if outcome.ok]
        tally.total("grad_norm", sum(norms) / len(norms) if norms else 0.0)
        tally.total("optimizer_steps", sum(outcome.ok for outcome in outcomes))
        figures = losses.effective_samples(tally.figures())
        return {**figures, "ok": float(all(outcome.ok for outcome in outcomes)), "lr": lr}

    def _dealt(self, micro_batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        return deal(micro_batches, self.parallel.data)[parallel_state.get_data_parallel_rank()]

    def _reference_logprobs(self, micro_batches: Sequence[MicroBatch], kept: Kept | None = None) -> list[Tensor]:
        if self.reference is None:
            raise LearnerError("a KL term needs a reference policy, and none was set")
        with self.reference.in_place():
            runner = self._runner(self.model)
            return runner.read(micro_batches, lambda inputs, rows: rows.scores(inputs.targets).unit, kept)

    def _runner(self, model: torch.nn.Module) -> MicroBatchRunner:
        multiple = self.parallel.tensor if self.parallel.sequence else 1
        flexible = self.config.attention == "flex"
        return MicroBatchRunner(model, self.device, multiple, self.style, self.eyes, flexible=flexible)


def _kind(of: checkpoints.CheckpointInfo | OptimConfig) -> tuple[str, str, str]:
    """What a checkpoint has to have in common with the deploy file, in its words."""
    rank, targets = of.lora.rank, ", ".join(of.lora.targets) or "all projections"
    lora_words = f"learner.lora.rank {rank} (alpha {of.lora.alpha:g}, {targets})" if rank else "no learner.lora"
    return f"learner.dtype {of.dtype}", lora_words, f"learner.vision {of.vision}"
