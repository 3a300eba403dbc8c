"""The messages of the replay ledger, and the values that they are made of.

One that changes state carries a fencing token, and a repeat gets the first answer; or a repeat does no harm.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from runtime.messaging.message import BlobRef, Done, Message, Request, Value, Version


class Lane(StrEnum):
    """Why an episode is played."""

    TRAIN = "train"
    EVAL = "eval"
    DEMO = "demo"


class Phase(StrEnum):
    """What the learner does with what desktops produce."""

    DEMO = "demo"  # demonstrations are recorded, nothing is trained
    BC = "bc"  # cross-entropy on demonstrations
    RL = "rl"  # step-level GRPO
    PULSE = "pulse"  # cross-entropy on the phase's own successes (Entropulse)
    DONE = "done"


class PhaseRef(Value):
    """One segment in a phase; `index` counts segments from 0, so RL before and after a pulse differ."""

    phase: Phase
    index: int


class Sampling(Value):
    """How tokens are drawn. `temperature` 0 is greedy. Top-p, top-k and penalties do not exist here on purpose."""

    temperature: float
    max_new_tokens: int


class VersionSpan(Value):
    """Tokens `start` (inclusive) to `end` (exclusive) of a response were drawn from weights `version`."""

    version: Version
    start: int
    end: int


class PictureRef(Value):
    """The screen as the model saw it, a PNG; steps of an episode that show the same share a blob."""

    blob: BlobRef
    digest: str  # SHA-256 of the PNG, hex
    width: int  # pixels
    height: int
    at: int  # index in `prompt_ids` of its first pad; 0 where the ids are the endpoint's own


class StepPayload(Value):
    """One stored prompt-response sample; lives in a segment file, encoded as MessagePack."""

    prompt_ids: list[int]
    response_ids: list[int]  # ends with the end-of-turn token unless cut by length
    logprobs: list[float]  # behaviour policy's, natural log at the recorded temperature; empty for demonstrations
    spans: list[VersionSpan]  # empty for demonstrations
    temperature: float
    observation: str  # text shown to the model, as stored for people
    response: str
    action: str | None  # JSON of the typed action, None when refused
    refusal: str | None
    result: str | None  # what the desktop answered
    screenshot: BlobRef | None
    observe_ms: float
    generate_ms: float
    act_ms: float
    by: str = ""  # of a demonstration: the member of the pool that took the step, or "policy"
    pictures: list[PictureRef] = []  # in the order of their pads


class StepRef(Value):
    """What the ledger knows of a step without opening its payload."""

    blob: BlobRef
    prompt_tokens: int
    response_tokens: int
    well_formed: bool
    oldest: Version | None  # version of the oldest token; None for demonstrations
    screenshot: BlobRef | None = None  # as in the payload; named here so that its segment lives as long as the step
    function: str = ""  # what the action calls ("click", "calc.set_cell"); "" when the answer was refused
    line: str = ""  # 16 hex digits: digest of the action with its arguments, or of an answer that was refused
    newest: Version | None = None  # version of the newest token; None for demonstrations
    surprisal: float = 0.0  # nats: minus the sum of `StepPayload.logprobs`
    remembered: bool = False  # what it showed and answered is a memo's: no desktop took part
    end: list[BlobRef] = []  # of an episode's last step: what it was judged by (`actors/desktop/recorder.py`)
    pictures: list[BlobRef] = []  # of the payload's

    @property
    def blobs(self) -> list[BlobRef]:
        """All payloads that live as long as the step."""
        return [self.blob, *([self.screenshot] if self.screenshot is not None else []), *self.end, *self.pictures]


class Fault(Value):
    """An infrastructure fault: something seen from the host went wrong. Never an outcome of the policy."""

    cause: str  # a `FaultCause` of actors/desktop, or another part's: "sampler_unavailable", "not_judged"
    detail: str
    culprit: str  # "seat", "host", "image", "task", "sampler", "verifier" or "disk": what quarantine counts it against


DISK_REFUSES = "disk_refuses"  # cause of a release: what was played could not be stored
DISK = "disk"  # its culprit: neither a seat, a host nor a task pays for it
DEFERRED = "put_off"  # cause of a release without a fault: an episode of a round waits until RL draws nothing


class Outcome(Value):
    """How an episode ended that no fault of the infrastructure ended."""

    success: bool
    reason: str  # "verified", "not_verified", "out_of_steps", "agent_broke_desktop", "agent_gave_up"
    feasible: bool = True
    score: float | None = None  # of the end state, 0 to 1, as OSWorld scores it; None: it was not judged


class TrajectoryRef(Value):
    """One committed episode."""

    token: int
    success: bool
    steps: list[StepRef]


class GroupRef(Value):
    """A complete group of one task."""

    group: str
    task: str
    trajectories: list[TrajectoryRef]


class EvalFigures(Value):
    """One evaluation round so far. Denominators of a rate: `planned` (all), `feasible`, `played` (without faults)."""

    round: str
    version: Version
    temperature: float
    tasks: int
    played: int  # episodes, like all that follow
    successes: int
    feasible: int  # planned and not found infeasible; those that faulted count as feasible
    faults: int  # faulted beyond the retry budget
    closed: bool = False
    task_set: str = ""  # `apis.tasks.registry.digest` of its tasks
    max_new_tokens: int = 0
    episodes: int = 1  # per task

    @property
    def planned(self) -> int:
        return self.tasks * self.episodes


class StepEvidence(Value):
    """What one RL step shows. `actors.replay.ledger.figures.diversity` has the formulas of entropies and distinct
    trajectories.

    Counts of `wasted` and rates go back to the RL step before. Rates stop at the segment's begin or a pause of the run.
    """

    lease: int
    version: Version
    stay: int  # index of the segment's first part, where a resume cut it
    stay_step: int  # from 1
    rl_step: int  # from 1, over all segments
    success: float  # of the training episodes committed since the step before, zero-variance groups among them; of the
    # trained ones alone where none was, and then `sampled_entropy_nats` is None
    action_entropy_nats: float  # over the functions of parsed actions
    group_call_entropy_nats: float  # over functions with their arguments, within a group
    parsed: int  # steps of the batch whose answer was an action
    refused: int
    distinct_trajectories: float  # different sequences of actions over trajectories, per group
    coverage: float  # tasks of the train lane ever solved, over all of them
    wasted: dict[str, int]  # ending other than `trained` -> groups
    staleness: dict[str, int]  # optimizer steps -> trajectories of the batch
    episodes_per_min: float  # train lane
    elapsed_s: float
    remembered: float = 0.0  # share of the batch's steps whose screen and result a memo gave
    success_by_kind: dict[str, float] = {}  # of late; empty without a curriculum
    # Of the groups whose last episode was committed since the step before, those of equal rewards among them:
    pass_at_1: float | None = None  # share of their episodes that succeeded; None without such a group
    pass_at_8: float | None = None  # chance that one of 8 episodes succeeds; None where none has 8
    equal_groups: float | None = None  # share of groups whose episodes all succeeded, or all failed
    all_right: dict[str, float] = {}  # family -> share of its groups whose episodes all succeeded
    all_wrong: dict[str, float] = {}  # the same of groups whose episodes all failed
    sampled_entropy_nats: float | None = None  # per token, of the same episodes as `success`; see `task_choice.played`


TRIAL, KEPT, ROLLED_BACK = "trial", "kept", "rolled_back"  # causes of segments


def trial_round(number: int, *, after: bool) -> str:
    """What the round before trial `number`, from 1, is called, and the one after it."""
    return f"trial{number}_{'after' if after else 'before'}"


class TrialFigures(Value):
    """What a supervisor that tries pulses decides by."""

    under_way: bool  # the current segment is a trial, or goes on with one
    begun: int  # trials, those rolled back too
    state: Literal["", "going_back", "left"]  # its verdict was to roll back: the learner is to go back, or has
    success: list[float]  # of each RL step since the last pulse that was kept
    entropy: list[float]  # nats per token, likewise
    judged: bool  # the newest trial's rounds are closed, or its first was abandoned
    gained: int  # instances that its second round alone solved
    lost: int  # those that its first alone solved


class Figures(Message):
    """A consistent snapshot of the ledger's counts; everything that Entropulse, progress and status show.

    At every moment groups_opened = groups_open + groups_ready + groups_leased + sum(endings).
    A segment that goes on after a resume counts as one segment.
    """

    revision: int  # grows with every change of the ledger; what WaitFigures waits on
    phase: PhaseRef
    phase_steps: int  # optimizer steps in this segment
    phase_limit: int | None  # the least of SetPhase.steps and, in RL, what `rl_steps_in_all` leaves for this segment
    steps: dict[str, int]  # phase -> optimizer steps in all its segments
    stays: dict[str, int]  # phase -> segments begun
    trained: Version
    checkpointed: Version | None
    served: Version | None  # oldest version over the live samplers
    demos: int  # successful demonstrations stored
    demo_attempts: int
    groups_open: int
    groups_ready: int
    groups_leased: int
    endings: dict[str, int]  # ending -> groups, all phases; `trained` counts those no checkpoint covers yet, too
    groups_opened: int
    groups_wasted: int  # groups of equal rewards since the last optimizer step
    successes_kept: int  # trajectories a pulse that began now would sample from
    episodes: dict[str, int]  # lane -> committed episodes
    faults: dict[str, int]  # cause -> released episodes
    # Per step of this segment, those of RL left out since whose predecessor no training episode ended:
    train_success: list[float]  # share of those episodes
    entropy: list[float]  # nats per token: in RL that of the same episodes
    evals: list[EvalFigures]
    seats_busy: int
    staleness: dict[str, int]  # staleness -> trajectories trained so far
    rounds_wait: bool = False  # rounds wait until RL draws nothing (`LedgerSettings.single_version`)
    tasks_resting: int = 0  # quarantined, because they kept breaking episodes
    evidence: StepEvidence | None = None  # of the newest RL step
    trials: TrialFigures | None = None  # with `entropulse.pulse` trials
    demo_strata: dict[str, int] = {}  # family/route or family/member -> successful demonstrations stored
    demo_tasks: dict[str, int] = {}  # family/stratum -> tasks always, sometimes or never solved; {} without strata
    demo_left: int | None = (
        None  # attempts that this segment still calls for; None outside demonstrations or without strata
    )


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
    fresh_optimizer: bool  # true on a phase's first batch after BC
    new_reference: bool  # the current weights become the reference policy before this step
    stay_step: int = 0  # versions made in this segment before this one, those before a resume included
    stay_limit: int | None = None  # steps that the rate's schedule has from the segment's first on
    rl_steps: int = 0  # of all segments of RL before this step
    steps_joined: int = 0  # versions made in earlier segments, whose optimizer this one goes on with
    trial_from: Version | None = None  # the weights before the trial under way, whose checkpoint is needed


class NothingToTake(Message):
    """No batch before the deadline; `final` when the run is over.

    `checkpoint` says that this segment's steps are all trained and the newest is in no checkpoint yet: write one now,
    since the next phase begins only when it is covered. `back_to` are the weights before a trial that failed: their
    checkpoint is to be loaded.
    """

    final: bool
    checkpoint: bool = False
    back_to: Version | None = None


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

    Groups that turn out to be without signal end so. The rest of the lease goes back.
    """

    lease: int
    blobs: list[BlobRef]
    cause: str  # of the first, for people
    without_signal: list[str] = []  # groups


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

    `task_set` says which tasks these are and what they are checked for (`apis.tasks.registry.digest`).
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


class CloseRun(Request[Done]):
    """The run is ending: parked asks are answered with `final` and nothing new opens."""
