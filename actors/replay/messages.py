"""The messages of the replay ledger, and the values that they are made of.

Invariant: a message that changes state carries the fencing token it was given, and a repeat gets the first answer.
Payloads (steps, screenshots) never travel here. Messages carry `BlobRef`s.
"""

from __future__ import annotations

import msgspec

from actors.replay.snapshot import EvalFigures, Figures, StepEvidence
from actors.replay.values import (
    DEFERRED,
    DISK,
    DISK_REFUSES,
    Fault,
    GroupRef,
    Lane,
    Outcome,
    Phase,
    PhaseRef,
    Sampling,
    StepPayload,
    StepRef,
    TrajectoryRef,
    VersionSpan,
)
from runtime.messaging.message import BlobRef, Done, Message, Request, Version

__all__ = [
    "DEFERRED",
    "DISK",
    "DISK_REFUSES",
    "SERVING_AGAIN_S",
    "Batch",
    "CheckpointDigests",
    "Checkpointed",
    "CloseRun",
    "Commit",
    "DemosMoved",
    "EvalFigures",
    "Fault",
    "Figures",
    "GetCheckpointDigests",
    "GetFigures",
    "GroupRef",
    "ImportDemos",
    "Lane",
    "LearnerResumed",
    "NoWork",
    "NothingToTake",
    "OpenEval",
    "Outcome",
    "Phase",
    "PhaseRef",
    "Release",
    "Reservation",
    "Reserve",
    "Sampling",
    "Serving",
    "SetPhase",
    "StepEvidence",
    "StepPayload",
    "StepRef",
    "Take",
    "Trained",
    "TrajectoryRef",
    "Unreadable",
    "VersionSpan",
    "WaitFigures",
]

SERVING_AGAIN_S = 45.0  # so long after its last `Serving` a sampler says it again


def trace_of(lane: Lane, group: str, round_name: str, slot: int) -> str:
    """What an episode is called in all logs; each attempt at it has the same."""
    where = {Lane.TRAIN: f"g{group}", Lane.EVAL: f"eval.{round_name}", Lane.DEMO: "demo"}[lane]
    return f"{where}.{slot}"


class Reservation(Message):
    """One episode to play."""

    token: int  # fencing token, unique per reservation in the life of the ledger
    lane: Lane
    task: str  # task id; resolved by apis.tasks
    group: str  # "" outside the train lane
    slot: int
    seed: int
    sampling: Sampling
    max_turns: int = msgspec.field(name="max_steps")  # as ledgers of before have it
    pin: Version | None  # evaluation: the only version that may be sampled from
    phase: PhaseRef
    route: str = ""  # demonstrations: the way to go ("gui", "api"), "" for any
    member: str = ""  # demonstrations: who shows it: a member of the pool, "mixed", "policy"; "" goes by `route`
    round: str = ""  # evaluation round, "" outside the eval lane; `slot` is the task's number in it

    @property
    def trace(self) -> str:
        """The episode's trace id in all logs: `g12.3`, `eval.after_bc.4` or `demo.5`."""
        return trace_of(self.lane, self.group, self.round, self.slot)


class NoWork(Message):
    """Nothing to play before the deadline; `final` when the run needs no more episodes."""

    final: bool


class Reserve(Request[Reservation | NoWork]):
    """A seat asks for work; parked until there is some or the ask's deadline nears.

    A seat holds one reservation at a time. A new request of a seat that still holds a reservation releases that as the
    fault `abandoned`. So a seat that died and came back frees its slot by asking again.
    """

    seat: str
    request_id: str  # idempotency key, new for every request
    wait_s: float = 20.0  # answer NoWork after this long


class Commit(Request[Done]):
    """An episode ended with an outcome."""

    token: int
    seat: str
    outcome: Outcome
    steps: list[StepRef]
    wall_s: float
    busy_s: float


class Release(Request[Done]):
    """An episode was broken by infrastructure: the slot goes back, nothing is learned from it."""

    token: int
    seat: str
    fault: Fault


class Batch(Message):
    """What one optimizer step is computed from. RL phases fill `groups`, cross-entropy phases `samples`."""

    lease: int  # fencing token of the lease
    phase: PhaseRef
    groups: list[GroupRef]
    samples: list[StepRef]
    staleness: list[int]  # per trajectory of `groups`, in optimizer steps
    fresh_optimizer: bool  # true on a phase's first batch after BC, unless it only renews the reference
    new_reference: bool  # the current weights become the reference policy before this step
    stay_step: int = 0  # versions made in this segment before this one, those before a resume included
    stay_limit: int | None = None  # steps that the rate's schedule has from the segment's first on
    steps_joined: int = 0  # versions made in the segments just before, whose optimizer and rate this one goes on with


class NothingToTake(Message):
    """No batch before the deadline; `final` when the run is over.

    `checkpoint` says that this segment's steps are all trained and the newest is in no checkpoint yet: write one now,
    since the next phase begins only when it is covered.
    """

    final: bool
    checkpoint: bool = False


class Take(Request[Batch | NothingToTake]):
    """The learner asks for the next batch; parked likewise.

    A learner holds one lease at a time: a new request while it holds one gives the old lease's groups back.
    """

    learner: str
    request_id: str
    trained: Version  # the learner's current version, for staleness
    wait_s: float = 20.0


class Trained(Request[Done]):
    """The batch became an optimizer step that made `version`."""

    lease: int
    version: Version
    figures: dict[str, float]  # loss, entropy, grad_norm, ... for Entropulse and reports


class Unreadable(Request[Done]):
    """Payloads of a lease can't be read: their groups end as lost, their samples are not drawn again.

    The rest of the lease goes back.
    """

    lease: int
    blobs: list[BlobRef]
    cause: str  # of the first, for people


class Checkpointed(Request[Done]):
    """A checkpoint holds everything trained up to and including `version`."""

    version: Version
    location: str
    digest: str  # of its files: what has another is not loaded


class CheckpointDigests(Message):
    """In the order asked for; "" where the ledger has none."""

    digests: list[str]


class GetCheckpointDigests(Request[CheckpointDigests]):
    """The digests of the checkpoints of these versions, as they were saved."""

    versions: list[Version]


class LearnerResumed(Request[Done]):
    """The learner starts lineage `version.lineage` from the checkpoint of `parent`; later leases go back.

    `version.step` equals `parent.step`. The checkpoint may be older than the current segment's first weights. Then the
    ledger re-enters the segment of the checkpoint's weights, so that a crash cuts no phase short.
    """

    version: Version
    parent: Version


class Serving(Request[Done]):
    """A sampler serves `version`; RL opens after a pulse only once post-pulse weights are served.

    Said again from time to time: one that falls silent is forgotten, as if it had stopped.
    """

    sampler: str
    version: Version | None  # None of a sampler that is gone for good


class OpenEval(Request[Done]):
    """Entropulse opens an evaluation round: `tasks`, `episodes` of each, at `sampling` with weights `version`.

    `task_set` says which tasks these are and what they are checked for (`apis.tasks.digest`).
    """

    round: str
    version: Version
    tasks: list[str]
    task_set: str
    sampling: Sampling
    episodes: int = 1  # per task, all drawn alike


class SetPhase(Request[Done]):
    """Entropulse commits a phase change, with the evidence that decided it. Refused unless `expected` is current."""

    expected: PhaseRef
    next: PhaseRef
    cause: str  # "counted", "plateau", "demos_complete", "bc_complete", ...
    evidence: dict[str, float]
    steps: int | None = None  # no batch is handed out beyond this many optimizer steps in the next segment


class GetFigures(Request[Figures]):
    """Ask for the snapshot."""


class WaitFigures(Request[Figures]):
    """Ask for the snapshot once its revision is above `since`, or after `wait_s` as it then is."""

    since: int
    wait_s: float = 20.0


class DemosMoved(Message):
    """How many successful demonstrations a file gave or got."""

    demos: int


class ImportDemos(Request[DemosMoved]):
    """Add a file's demonstrations; a file already imported adds nothing."""

    path: str


class CloseRun(Request[Done]):
    """The run is ending: parked asks are answered with `final` and nothing new opens."""
