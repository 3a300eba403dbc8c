"""The learner's settings. Importing them loads no tensor library."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

import msgspec

from policy.advantage import AdvantageLevel, Baseline
from policy.packing import Aggregation
from policy.settings import LoraConfig, Objective, OptimConfig, ParallelConfig
from runtime.errors import ConfigError
from runtime.settings import Section, key, tuning

EPOCHS_MOST = 1024  # far more passes than one batch is good for


class Schedule(StrEnum):
    """How the learning rate goes on after its warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class RlConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner.rl`: what RL asks of the learner, and nothing else does."""

    AT: ClassVar[str] = "learner.rl"

    lr: Annotated[float, key("Sets the learning rate of RL.", gt=0)] = 2e-4
    warmup_steps: Annotated[
        int, tuning("Raises the rate over this many steps at the start of each RL phase.", ge=0)
    ] = 10
    lr_schedule: Annotated[Schedule, key("Chooses how the rate goes on over an RL phase.")] = Schedule.CONSTANT
    lr_cycle_steps: Annotated[
        int, tuning("Restarts warm-up and schedule every this many steps of an RL phase. 0 does not.", ge=0)
    ] = 0
    epochs: Annotated[
        int, tuning("Takes this many optimizer steps on one batch, each over all of it.", ge=1, le=EPOCHS_MOST)
    ] = 1
    advantage: Annotated[
        AdvantageLevel,
        tuning("Chooses what a reward belongs to: each step, or the whole trajectory."),
    ] = AdvantageLevel.STEP
    advantage_std: Annotated[bool, tuning("Divides advantages by the group's standard deviation.")] = True
    baseline: Annotated[
        Baseline,
        tuning("Chooses what is taken off a reward: the mean of the group, or of its other episodes (leave_one_out)."),
    ] = Baseline.GROUP
    negative_scale: Annotated[
        float, key("Multiplies negative advantages. 1 is GRPO; 0 learns from success alone.", ge=0, le=1)
    ] = 1.0
    entropy_target: Annotated[
        float,
        tuning("Acts while a batch's entropy per token, in nats, is below this: see entropy_coef. 0 never acts.", ge=0),
    ] = 0.0
    entropy_coef: Annotated[
        float,
        tuning(
            "Multiplies an entropy bonus, by how far entropy is below its target. With 0 the surest answers of"
            " positive advantage are left out in its place.",
            ge=0,
        ),
    ] = 0.0
    reward: Annotated[
        str, tuning("Names a function of one's own package that rewards each step, as package.module:function.")
    ] = ""
    loss: Annotated[
        str, tuning("Names a function of one's own package that is each token's loss, as package.module:function.")
    ] = ""
    importance_ratio: Annotated[
        Literal["direct", "decoupled"],
        tuning("Chooses a ratio's denominator: the policy that acted, or the policy before the step (decoupled)."),
    ] = "direct"
    ratio: Annotated[
        Literal["token", "sequence"],
        tuning("Clips each token's ratio, or the geometric mean of an answer's (sequence, GSPO)."),
    ] = "token"
    mismatch: Annotated[
        Literal["none", "tis", "token_mask", "sequence_mask"],
        tuning(
            "Corrects for the engine's log-probabilities: weights up to tis_cap under decoupled (tis), or leaves out"
            " tokens or answers that are off by more than tis_cap."
        ),
    ] = "tis"
    clip_ratio_low: Annotated[float, tuning("Clips a ratio below 1 minus this.", gt=0)] = 0.2
    clip_ratio_high: Annotated[float, tuning("Clips a ratio above 1 plus this.", gt=0)] = 0.2
    dual_clip: Annotated[
        float, tuning("Limits the loss of a token with negative advantage A to this times |A|.", gt=1)
    ] = 3.0
    tis_cap: Annotated[
        float, tuning("Limits the weight of a token under decoupled, and what a mask of mismatch lets pass.", ge=1)
    ] = 2.0
    kl_coef: Annotated[
        float, key("Multiplies the k3 estimate of the KL to the reference. 0 keeps no reference.", ge=0)
    ] = 0.0
    threads: Annotated[int, tuning("Sets the CPU threads of each rank in RL, next to desktops and samplers.", ge=1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reward and self.advantage is AdvantageLevel.TRAJECTORY:
            wrong = "learner.rl.advantage trajectory is of verdicts"
            raise ConfigError(f"learner.rl.reward is {self.reward!r}: it rewards steps, and {wrong}")

    def objective(self, entropy: float = 0.0) -> Objective:
        """The part that is the ranks', for a batch of so much entropy per token, in nats."""
        own = {name: getattr(self, name) for name in Objective.__struct_fields__ if name in self.__struct_fields__}
        own["entropy_coef"] = self.entropy_coef * self.below_target(entropy)
        return Objective(**own, entropy=entropy if own["entropy_coef"] else 0.0)

    def below_target(self, entropy: float) -> float:
        """How far `entropy` is below its target, as a share of the target: 0 at it or above."""
        return max(0.0, 1.0 - entropy / self.entropy_target) if self.entropy_target else 0.0


# Of RL, what a plan shows where it is not as usual.
OPTIONS = (
    *("advantage_std", "baseline", "importance_ratio", "ratio", "mismatch", "tis_cap"),
    *("kl_coef", "negative_scale", "entropy_target", "entropy_coef", "reward", "loss"),
)


class SftConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner.sft`: behaviour cloning and pulses."""

    AT: ClassVar[str] = "learner.sft"

    lr: Annotated[float, key("Sets the learning rate of behaviour cloning.", gt=0)] = 1e-3
    pulse_lr: Annotated[float, tuning("Sets the learning rate of pulses.", gt=0)] = 3e-4
    warmup_steps: Annotated[
        int, tuning("Raises the rate over this many steps at the start of cloning and of each pulse.", ge=0)
    ] = 10
    lr_schedule: Annotated[Schedule, key("Chooses how the rate goes on over cloning and over a pulse.")] = (
        Schedule.CONSTANT
    )
    threads: Annotated[
        int, tuning("Sets the CPU threads of each rank in cloning and pulses, while the others rest.", ge=1)
    ] = 1


class LearnerConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `learner`."""

    AT: ClassVar[str] = "learner"

    rl: RlConfig = RlConfig()
    sft: SftConfig = SftConfig()
    lr_floor: Annotated[float, tuning("Sets the share of the rate that a falling schedule ends at.", ge=0, le=1)] = 0.1
    betas: Annotated[
        tuple[Annotated[float, msgspec.Meta(ge=0, lt=1)], Annotated[float, msgspec.Meta(ge=0, lt=1)]],
        tuning("Sets Adam's two betas."),
    ] = (0.9, 0.98)
    weight_decay: Annotated[float, tuning("Sets Adam's decoupled weight decay.", ge=0)] = 0.01
    clip_grad: Annotated[float, tuning("Limits the gradient's norm.", gt=0)] = 1.0
    token_budget: Annotated[int, tuning("Limits one packed sequence, in tokens.", ge=1)] = 8192
    loss_aggregation: Annotated[
        Aggregation,
        tuning("Chooses how token losses add up. The publication runs token_mean; its formula is step_mean."),
    ] = Aggregation.TOKEN_MEAN
    rehearsal: Annotated[
        int, tuning("Adds this many exercises of the base model's corpus to every optimizer step.", ge=0)
    ] = 0
    rehearsal_coef: Annotated[float, tuning("Multiplies the mean token loss of rehearsed exercises.", gt=0)] = 0.4
    probe_every: Annotated[
        int,
        tuning("Looks at the first 256 prompts of RL, every so many steps of RL. 0 never does.", ge=0),
    ] = 0
    checkpoint_every: Annotated[int, key("Writes a checkpoint after this many versions.", ge=1)] = 10
    dtype: Annotated[
        Literal["float32", "bfloat16"], tuning("Chooses the type of weights. bfloat16 pays on GPUs only.")
    ] = "float32"
    recompute: Annotated[
        Literal["none", "selective", "full"],
        tuning("Computes parts again in the backward pass, for memory: each MLP (selective) or each layer (full)."),
    ] = "none"
    attention: Annotated[
        Literal["sdpa", "flex"],
        tuning(
            "Computes attention by a call for each response (sdpa), or for a packed sequence (flex), on a GPU alone."
        ),
    ] = "sdpa"
    device_gib: Annotated[
        float, tuning("Plans for devices of so many GiB, as of another machine. 0 takes this machine's.", ge=0, le=4096)
    ] = 0.0
    lora: LoraConfig = LoraConfig()
    vision: Annotated[
        Literal["frozen", "merger", "all"],
        tuning("Trains what shows pictures to the model, too: the merger behind the tower, or all of the tower."),
    ] = "frozen"
    parallel: ParallelConfig = ParallelConfig()
    place: Annotated[
        dict[str, float],
        key(
            "Puts each rank on a machine of the cluster that has so much free: {GPU: 1, CPU: 4}. Empty keeps them on"
            " this machine, where checkpoints and weights lie in either case.",
            advanced=True,
        ),
    ] = {}
    actor_place: Annotated[
        dict[str, float],
        key(
            "Puts the learner's actor, which plans the ranks' steps, on a machine of the cluster that has so much free:"
            " {CPU: 1}. Empty keeps it on this machine.",
            advanced=True,
        ),
    ] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora.rank and self.parallel.pipeline > 1:
            raise ConfigError(
                f"learner.parallel.pipeline is {self.parallel.pipeline}: with learner.lora.rank it is 1;"
                " learner.parallel.tensor splits layers, and learner.parallel.data shares the batches"
            )
        if self.vision != "frozen" and (self.lora.rank or self.parallel.pipeline > 1 or self.parallel.tensor > 1):
            raise ConfigError(
                f"learner.vision is {self.vision}: a tower is trained with learner.lora.rank 0, and with"
                " learner.parallel.tensor and learner.parallel.pipeline 1"
            )

    def optim(self) -> OptimConfig:
        return OptimConfig(
            betas=self.betas,
            weight_decay=self.weight_decay,
            clip_grad=self.clip_grad,
            dtype=self.dtype,
            recompute=self.recompute,
            attention=self.attention,
            lora=self.lora,
            vision=self.vision,
        )


class GroupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How weights go to the samplers' engines by collective."""

    address: str = "127.0.0.1"  # of the rank's host, as engines reach it
    backend: str = "gloo"  # or "nccl"
    join_s: float = 10.0  # an engine that is ready waits so long for the others
    form_s: float = 20.0  # engines that were ready have so long to join
    send_s: float = 120.0  # after so long the sender gives up


class RankSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a rank actor is started with."""

    learner: LearnerConfig = LearnerConfig()
    ranks: tuple[str, ...] = ("rank/0",)  # the actors of all ranks, in order
    turns: bool = False  # an engine has the card between steps


class LearnerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the learner actor is started with."""

    learner: LearnerConfig
    model: str  # Hugging Face folder that a new run starts from
    seed: int = 0  # of the exercises that are rehearsed
    samplers: list[str]  # actors to which new weights are announced
    transport: Literal["disk", "collective", "shared", "adapter"] = "disk"  # others write folders once asked
    groups: GroupSettings | None = None  # of "collective"
    turns: bool = False  # the engines and the rank have one card in turn
    rank: str = "rank/0"
    replay: str = "replay"
    keep_weights: int = 4  # newest exports kept, and those that an open evaluation round needs
    keep_checkpoints: int = 2
    take_wait_s: float = 20.0  # how long the ledger may hold a request for a batch
    load_timeout_s: float = 300.0  # a rank's start included; that ranks meet not
    step_timeout_s: float = 3600.0
