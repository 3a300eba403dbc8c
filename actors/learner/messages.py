"""What the learner actor and its ranks understand and log. A plan holds numbers only: no tensors, no text."""

from __future__ import annotations

import msgspec

from actors.learner.config import GroupSettings
from actors.sampler.messages import Canary, Weights
from policy.packing import MicroBatch
from policy.settings import Objective
from policy.tensorfiles import BroadcastPart
from runtime.logs.events import declare, declare_struct
from runtime.messaging.message import Done, Message, Request, Value, Version


class StepResult(Message):
    """What one rank reports of a step. `figures` are already reduced over ranks."""

    plan_id: str
    version: Version
    figures: dict[str, float]  # policy.megatron.trainer says which
    ok: bool  # False when the optimizer skipped the step (non-finite gradients)
    t0: float  # seconds of the run's clock: begin and end of the computation
    t1: float


class PlanFile(Value):
    """A file that holds the micro-batches of a plan, msgpack-encoded."""

    location: str
    size_bytes: int
    digest: str  # blake2b-128, hex


class StepPlan(Request[StepResult]):
    """One training step over all of `micro_batches`. A repeat of `plan_id` gets the first answer."""

    plan_id: str
    kind: str  # "grpo" or "cross_entropy"
    version: Version  # the version this step makes: one step after the rank's
    micro_batches: list[MicroBatch]  # none where a file holds them
    lr: float
    rehearsal: list[list[MicroBatch]] = []  # of each optimizer step, exercises whose cross-entropy its loss includes
    fresh_optimizer: bool = False
    new_reference: bool = False
    objective: Objective = Objective()  # of RL
    epochs: int = 1  # optimizer steps, each over all micro-batches; together they make one version
    plan_file: PlanFile | None = None


class ProbeFigures(Message):
    """What the weights make of micro-batches: figures of `policy.megatron.trainer.Trainer.evaluate`."""

    figures: dict[str, float]


class LookAt(Request[ProbeFigures]):
    """Read micro-batches and change nothing. Refused unless the rank is at `version`."""

    version: Version
    micro_batches: list[MicroBatch]


class ModelLoaded(Message):
    """The rank holds a model."""

    parameters: int


class LoadModel(Request[ModelLoaded]):
    """Start from a Hugging Face folder, or from a checkpoint folder with optimizer state, of that version's step."""

    location: str
    checkpoint: bool
    version: Version  # what these weights are called from now on
    digest: str = ""  # of a checkpoint's files, as the ledger has it: others are not loaded


class Saved(Message):
    """Where it lies and its digest, hex: `tensorfiles.digest` of an export, blake2b-128 of a checkpoint's files."""

    location: str
    digest: str
    seconds: float
    canary: Canary | None = None  # of an export: what the model makes of a fixed prompt
    adapter_digest: str = ""


class ExportWeights(Request[Saved]):
    """Take the weights as they are. Refused unless the rank is at `version`."""

    version: Version
    location: str
    keep: bool = False  # keep them in memory, to be broadcast or written while training goes on
    write: bool = True  # write a Hugging Face folder (safetensors, config, tokenizer)
    adapter: str = ""  # write the adapter alone to this folder, in PEFT's form


class WriteKept(Request[Saved]):
    """Write the folder of what was kept, during other work. Refused for a version that is not kept any more."""

    version: Version
    location: str


class Rest(Request[Done]):
    """Free what a step needs of the card. The next request that needs it takes it again."""


class SaveCheckpoint(Request[Saved]):
    """Write model, optimizer and reference so that a resume gives the same losses. Refused likewise."""

    version: Version
    location: str


class LearnerState(Message):
    """The newest announced weights and where they lie.

    They are behind what is trained by at most a step of RL, or the steps of cloning since the last checkpoint.
    """

    version: Version
    location: str


class GetLearnerState(Request[LearnerState]):
    """Ask for the newest announced weights. Where weights go by collective their folder may not be written."""


class WriteWeights(Request[Weights]):
    """Ask for the newest announced weights as a folder on disk. Refused when they are others than `version`."""

    version: Version


# --- several ranks: from rank 0 to the others, which also get every request that it carries out ----------------------


class RankPlace(Message):
    """The address of the rank's machine."""

    address: str


class GetReady(Request[RankPlace]):
    """The ranks are about to meet. A process that has met some before ends; its successor answers."""


class JoinRanks(Request[Done]):
    """Meet the other ranks at rank 0's store. Answered when all are there."""

    address: str
    port: int
    rank: int
    ranks: int


class EndRank(Message):
    """The ranks have come apart: end the process, so that its successor can meet those of the others."""

    cause: str


# --- weights by collective -----------------------------------------------------------------------------------------


class Broadcasting(Message):
    """The group's store listens, and the sender waits in it."""

    port: int
    parts: list[BroadcastPart]  # in this order; each part's bytes are one broadcast


class Broadcast(Request[Broadcasting]):
    """Send what was kept of `version` to a group. Answered at once; it ends by its deadlines during other work.

    Refused unless `version` was kept, and while another group is being sent to.
    """

    version: Version
    group: str  # of this publication alone
    ranks: int  # of all engines together; the sender is rank 0
    settings: GroupSettings


class Ticket(Message):
    """An engine's place in a group that receives one version."""

    rank: int  # the engine's first
    request: Broadcast
    sender: Broadcasting


class SharedWeights(Message):
    """One version in memory of this machine, as SGLang's `/update_weights_from_tensor` takes it.

    Each part names tensors, and says where they lie: base64 of a pickle of handles. They stay until the next version.
    """

    parts: list[str]


class ShareKept(Request[SharedWeights]):
    """Asked of the rank. Refused unless `version` was kept."""

    version: Version


class NoGroup(Message):
    """There is no place in a group: the weights are to be loaded from disk."""

    reason: str


class JoinGroup(Request[Ticket | SharedWeights | NoGroup]):
    """Asked by a sampler whose engine can take `version` now; answered when the group is complete, or at once."""

    version: Version
    sampler: str
    ranks: int  # the engine's tensor-parallel size


class DeclineGroup(Message):
    """Said by a sampler that does not take `version` from a group, so the group does not wait for it."""

    version: Version
    sampler: str


# --- what the learner logs -----------------------------------------------------------------------------------------


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step; `t0` and `t1` as in `StepResult`."""

    version: str
    phase: str
    kind: str
    lease: int
    t0: float
    t1: float
    micro_batches: int
    samples: int
    loss: float
    entropy: float
    grad_norm: float
    tokens: float
    lr: float
    figures: dict[str, float]  # all others


LEARNER_STEP = declare_struct("learner_step", "info", StepReport)
STEP_SKIPPED = declare("step_skipped", "warning", version=str, cause=str, in_a_row=int)
GROUPS_WITHOUT_SIGNAL = declare("groups_without_signal", "warning", lease=int, groups=list[str])
LEASE_LOST = declare("lease_lost", "warning", lease=int, version=str, cause=str)
WEIGHTS_ANNOUNCED = declare(
    "weights_announced", "info",
    version=str, location=str, export_s=float, announce_s=float, samplers=list[str], missed=list[str],
)  # fmt: skip
# `ready_s`: how long the engine that was ready first has waited for the others. `late`: who did not come in time.
GROUP_FORMED = declare(
    "group_formed", "info", version=str, group=str, samplers=list[str], ranks=int, ready_s=float, late=list[str]
)
GROUP_NOT_FORMED = declare("group_not_formed", "warning", version=str, samplers=list[str], cause=str)
WEIGHTS_SENT = declare(
    "weights_sent", "info", version=str, group=str, ranks=int, size_bytes=int, join_s=float, send_s=float
)
WEIGHTS_NOT_SENT = declare("weights_not_sent", "warning", version=str, group=str, cause=str, after_s=float)
CHECKPOINT_SAVED = declare("checkpoint_saved", "info", version=str, location=str, save_s=float, cause=str)
LEARNER_STARTED = declare("learner_started", "info", version=str, parameters=int, location=str)
LEARNER_RESUMED = declare("learner_resumed", "warning", version=str, parent=str, location=str, cause=str)
# A rank's process ends itself, because the ranks may have come apart; its supervisor starts another.
RANK_ENDS = declare("rank_ends", "warning", cause=str)
RANK_LOST = declare("rank_lost", "warning", version=str, cause=str)
LEARNER_FINISHED = declare("learner_finished", "info", version=str, steps=int, busy_s=float)
