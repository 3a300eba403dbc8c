"""The learner's settings.

Invariant: importing it loads no tensor library, and a combination that can't train is refused here.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import msgspec

from policy.advantage import Level
from policy.optim import OptimConfig
from policy.packing import Aggregation
from runtime.errors import ConfigError

EPOCHS_MOST = 1024  # far more passes than one batch is good for


class Schedule(StrEnum):
    """How the learning rate goes on after its warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class LearnerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The deploy file's `learner`."""

    bc_lr: float = 1e-3  # learning rate of cloning
    rl_lr: float = 2e-4  # learning rate of RL
    pulse_lr: float = 3e-4  # learning rate of pulses
    warmup_steps: int = 10  # batches at the start of every stay in a phase over which the rate rises
    rl_warmup_steps: int | None = None  # `warmup_steps` of RL's stays, where they are others
    lr_schedule: Schedule = Schedule.CONSTANT  # of the learning rate, over every stay in a phase
    sft_lr_schedule: Schedule | None = None  # `lr_schedule` of cloning and pulses, where it is another than RL's
    rl_cycle: int = 0  # RL's rate rises and falls anew every so many steps of a stay, limited or not; 0: once a stay
    lr_floor: float = 0.1  # share of the rate that a falling schedule ends at
    betas: tuple[float, float] = (0.9, 0.98)  # Adam's
    weight_decay: float = 0.01  # decoupled, Adam's
    clip_grad: float = 1.0  # the gradient's largest norm
    token_budget: int = 8192  # tokens of one packed sequence
    loss_aggregation: Aggregation = Aggregation.TOKEN_MEAN  # the publication's configuration; its formula is step_mean
    advantage: Level = Level.STEP  # what rewards belong to
    advantage_std: bool = True  # divide advantages by the group's standard deviation
    negative_scale: float = 1.0  # what negative advantages are multiplied by, 0 to 1: 1 is GRPO, 0 learns from success
    # A ratio's denominator: the policy that acted, or with "decoupled" the one that the step began with.
    policy: Literal["direct", "decoupled"] = "direct"
    epochs: int = 1  # optimizer steps on one batch of RL, each over all of it
    clip_low: float = 0.2  # a ratio below 1 less this is clipped
    clip_high: float = 0.2  # a ratio above 1 and this is clipped
    dual_clip: float = 3.0  # c: a token of negative advantage A costs at most c * |A|
    mismatch_cap: float = 2.0  # C: `decoupled` weighs a token by at most this much
    kl_coef: float = 0.0003  # what the k3 estimate of the KL to the reference is multiplied by; 0: no reference is kept
    rehearsal: int = 0  # exercises of the base model's corpus in every optimizer step, of cloning, RL and pulses
    rehearsal_coef: float = 0.4  # what the mean token loss of rehearsed exercises is multiplied by
    checkpoint_every: int = 10  # versions from one checkpoint to the next
    dtype: Literal["float32", "bfloat16"] = "float32"  # bfloat16 pays on GPUs only
    ranks: int = 1  # processes that share the learner's work; one for now
    threads: int = 1  # of each rank in RL, beside desktops and samplers
    sft_threads: int = 1  # of each rank in cloning and pulses, while those rest

    def __post_init__(self) -> None:
        if self.ranks != 1:
            raise ConfigError(f"learner.ranks is {self.ranks}: this version trains on one rank")
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), float) and not math.isfinite(value):
                raise ConfigError(f"learner.{name} is {value}: it is a finite number")
        if self.policy not in {"direct", "decoupled"}:
            raise ConfigError(f"learner.policy is {self.policy!r}: it is direct or decoupled")
        if self.dtype not in {"float32", "bfloat16"}:
            raise ConfigError(f"learner.dtype is {self.dtype!r}: it is float32 or bfloat16")
        for name in ("bc_lr", "rl_lr", "pulse_lr", "clip_low", "clip_high", "clip_grad", "rehearsal_coef"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"learner.{name} is {getattr(self, name)}: it is above 0")
        if self.dual_clip <= 1:
            raise ConfigError(f"learner.dual_clip is {self.dual_clip}: it is above 1")
        if self.mismatch_cap < 1:
            raise ConfigError(f"learner.mismatch_cap is {self.mismatch_cap}: it is at least 1")
        if not 0 <= self.lr_floor <= 1:
            raise ConfigError(f"learner.lr_floor is {self.lr_floor}: it is a share, from 0 to 1")
        if not 0 <= self.negative_scale <= 1:
            raise ConfigError(f"learner.negative_scale is {self.negative_scale}: it is a share, from 0 to 1")
        for name in ("token_budget", "checkpoint_every", "threads", "sft_threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"learner.{name} is {getattr(self, name)}: it counts from 1")
        if not 1 <= self.epochs <= EPOCHS_MOST:
            raise ConfigError(f"learner.epochs is {self.epochs}: it counts from 1 to {EPOCHS_MOST}")
        if self.rl_cycle < 0:
            raise ConfigError(f"learner.rl_cycle is {self.rl_cycle}: it counts steps, and 0 is none")
        if self.rehearsal < 0:
            raise ConfigError(f"learner.rehearsal is {self.rehearsal}: it counts exercises, and 0 is none")
        for name in ("kl_coef", "warmup_steps", "rl_warmup_steps", "weight_decay"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"learner.{name} is {getattr(self, name)}: it is not below 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"learner.betas is {list(self.betas)}: both are from 0 to below 1")

    def optim(self) -> OptimConfig:
        """The part that is the trainer's."""
        return OptimConfig(betas=self.betas, weight_decay=self.weight_decay, clip_grad=self.clip_grad, dtype=self.dtype)


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How weights go to the samplers' engines by collective."""

    address: str = "127.0.0.1"  # of the rank's host, as engines reach it
    backend: str = "gloo"  # or "nccl"
    bucket: bool = True  # many tensors' bytes as one broadcast, else one broadcast per tensor
    checksums: bool = False  # engines are undivided, on CPUs and of the learner's type: they hold the very bytes sent
    join_s: float = 10.0  # an engine that is ready waits so long for the others
    form_s: float = 20.0  # engines that were ready have so long to join
    send_s: float = 120.0


class RankSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a rank actor is started with."""

    optim: OptimConfig = OptimConfig()
    threads: int = 1
    sft_threads: int = 1
    reference: bool = True  # there is a KL term: the reference of a checkpoint is wanted


class LearnerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the learner actor is started with."""

    learner: LearnerConfig
    base: str  # Hugging Face folder that a new run starts from
    seed: int = 0  # of the exercises that are rehearsed
    samplers: list[str]  # actors told of new weights
    groups: GroupSettings | None = None  # None: samplers load from disk
    rank: str = "rank/0"
    replay: str = "replay"
    keep_weights: int = 4  # newest exports kept, beside those that an open evaluation round needs
    keep_checkpoints: int = 2
    take_wait_s: float = 20.0  # how long the ledger may park a wish for a batch
    load_timeout_s: float = 300.0  # a rank's start included
    step_timeout_s: float = 3600.0
