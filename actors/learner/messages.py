"""What the learner actor and its rank processes understand. A plan holds numbers only: no tensors, no text."""

from __future__ import annotations

from runtime.message import Message, Request, Value, Version


class PackedSample(Value):
    """One prompt-response sample inside a micro-batch.

    `ids` is prompt + response; the last `response_len` tokens are the response.
    """

    ids: list[int]
    response_len: int
    weight: float  # this sample's share of the whole Take's loss per token: the exact denominator is already in it
    advantage: float = 0.0  # RL only
    behaviour_logprobs: list[float] = []  # RL only, response_len of them, at `temperature`
    temperature: float = 1.0


class MicroBatch(Value):
    """Samples packed into one sequence of at most the token budget."""

    samples: list[PackedSample]


class StepResult(Message):
    """What one rank reports of a step. `figures` are already reduced over ranks."""

    plan_id: str
    version: Version
    figures: dict[str, float]  # loss, grad_norm, entropy, kl, clip_fraction, mismatch, tokens, seconds by part
    ok: bool  # False when the optimizer skipped the step (non-finite gradients)


class StepPlan(Request[StepResult]):
    """One optimizer step over all of `micro_batches`."""

    plan_id: str  # idempotency key
    kind: str  # "grpo" or "cross_entropy"
    version: Version  # the version this step makes
    micro_batches: list[MicroBatch]
    lr: float
    fresh_optimizer: bool = False
    new_reference: bool = False
    kl_coef: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 3.0
    policy: str = "direct"  # or "decoupled"
    mismatch_cap: float = 2.0


class ModelLoaded(Message):
    """The rank holds a model."""

    parameters: int
    vocab_size: int
    trained: Version | None  # of a checkpoint


class LoadModel(Request[ModelLoaded]):
    """Start from a Hugging Face folder, or from a checkpoint folder with optimizer state."""

    location: str
    checkpoint: bool


class Saved(Message):
    """Where it lies and its digest (blake2b-128 of the safetensors, hex; empty for checkpoints)."""

    location: str
    digest: str
    seconds: float


class ExportWeights(Request[Saved]):
    """Write a Hugging Face folder (safetensors, config, tokenizer)."""

    version: Version
    location: str


class SaveCheckpoint(Request[Saved]):
    """Write model, optimizer, scheduler and reference so that a resume gives the same losses."""

    version: Version
    location: str


class LearnerState(Message):
    """The newest weights and where they lie."""

    version: Version
    location: str
    busy_s: float  # seconds inside optimizer steps since start


class GetLearnerState(Request[LearnerState]):
    """Ask what is trained."""
