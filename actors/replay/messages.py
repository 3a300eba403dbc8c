"""What the replay ledger understands.

Every message that changes state carries the fencing token it was given and is idempotent: a repeat gets the
first answer. Payloads (steps, screenshots) never travel here; messages carry `BlobRef`s.
"""

from __future__ import annotations

from enum import StrEnum

from runtime.message import BlobRef, Done, Message, Request, Value, Version


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
    """One stay in a phase; `index` counts stays from 0, so RL before and after a pulse differ."""

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


class Fault(Value):
    """An infrastructure fault: something seen from the host went wrong. Never an outcome of the policy."""

    cause: str  # one of apis/desktop fault causes, e.g. "boot_timeout", "connection_lost", "sampler_unavailable"
    detail: str
    culprit: str  # "seat", "host", "image", "task", "sampler" or "verifier": what quarantine counts it against


class Outcome(Value):
    """How an episode ended on its own account."""

    success: bool
    reason: str  # "verified", "not_verified", "out_of_steps", "agent_broke_desktop", "agent_gave_up"
    feasible: bool = True


class Reservation(Message):
    """One episode to play."""

    token: int  # fencing token, unique per reservation in the life of the ledger
    lane: Lane
    task: str  # task id; resolved by apis.tasks
    group: str  # "" outside the train lane
    slot: int
    seed: int
    sampling: Sampling
    max_steps: int
    pin: Version | None  # evaluation: the only version that may be sampled from
    phase: PhaseRef
    route: str = ""  # demonstrations: the way to go ("gui", "api"), "" for any
    member: str = ""  # demonstrations: who shows it: a member of the pool, "mixed", "policy"; "" goes by `route`
    round: str = ""  # evaluation round, "" outside the eval lane; `slot` is the task's number in it

    @property
    def trace(self) -> str:
        """The episode's trace id in all logs: `g12.3`, `eval.after_bc.4` or `demo.5`."""
        where = {Lane.TRAIN: f"g{self.group}", Lane.EVAL: f"eval.{self.round}", Lane.DEMO: "demo"}[self.lane]
        return f"{where}.{self.slot}"


class NoWork(Message):
    """Nothing to play before the deadline; `final` when the run needs no more episodes."""

    final: bool


class Reserve(Request[Reservation | NoWork]):
    """A seat asks for work; parked until there is some or the ask's deadline nears.

    A seat holds one reservation at a time: a new wish of a seat that still holds one releases the old one as the
    fault `abandoned`, so a seat that died and came back frees its slot by asking again.
    """

    seat: str
    request_id: str  # idempotency key, new for every wish
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


class Batch(Message):
    """What one optimizer step is computed from. RL phases fill `groups`, cross-entropy phases `samples`."""

    lease: int  # fencing token of the lease
    phase: PhaseRef
    groups: list[GroupRef]
    samples: list[StepRef]
    staleness: list[int]  # per trajectory of `groups`, in optimizer steps
    fresh_optimizer: bool  # true on a phase's first batch after BC
    new_reference: bool  # the current weights become the reference policy before this step
    stay_step: int = 0  # optimizer steps of this stay before this one, those before a resume included
    stay_limit: int | None = None  # steps that the stay has at most


class NothingToTake(Message):
    """No batch before the deadline; `final` when the run is over.

    `checkpoint` says that this stay's steps are all trained and the newest is in no checkpoint yet: write one now,
    since the next phase begins only when it is covered.
    """

    final: bool
    checkpoint: bool = False


class Take(Request[Batch | NothingToTake]):
    """The learner asks for the next batch; parked likewise.

    A learner holds one lease at a time: a new wish while it holds one gives the old lease's groups back.
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


class Checkpointed(Request[Done]):
    """A checkpoint holds everything trained up to and including `version`."""

    version: Version
    location: str


class LearnerResumed(Request[Done]):
    """The learner starts lineage `version.lineage` from the checkpoint of `parent`; later leases go back.

    `version.step` equals `parent.step`. Where the checkpoint is older than the current stay's first weights, the
    ledger re-enters the stay that those weights belong to, so that no phase is cut short by a crash.
    """

    version: Version
    parent: Version


class Serving(Request[Done]):
    """A sampler serves `version`; RL opens after a pulse only once post-pulse weights are served.

    Said again from time to time: one that falls silent is forgotten, as if it had stopped.
    """

    sampler: str
    version: Version


class StoppedServing(Request[Done]):
    """A sampler left for good: its version no longer holds admission back."""

    sampler: str


class OpenEval(Request[Done]):
    """Entropulse opens an evaluation round: `tasks`, `episodes` of each, at `sampling` with weights `version`."""

    round: str
    version: Version
    tasks: list[str]
    sampling: Sampling
    episodes: int = 1  # per task, all drawn alike


class SetPhase(Request[Done]):
    """Entropulse commits a phase change, with the evidence that decided it. Refused unless `expected` is current."""

    expected: PhaseRef
    next: PhaseRef
    cause: str  # "counted", "plateau", "demos_complete", "bc_complete", ...
    evidence: dict[str, float]
    steps: int | None = None  # no batch is handed out beyond this many optimizer steps in the next stay
    total: int | None = None  # nor beyond this many in all stays of the next phase; None: as it was said before


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
    feasible_successes: int = 0
    closed: bool = False
    task_set: str = ""  # blake2b-64 of the sorted task ids, hex
    max_new_tokens: int = 0
    episodes: int = 1  # per task

    @property
    def planned(self) -> int:
        """Episodes of the whole round."""
        return self.tasks * self.episodes


class StepEvidence(Value):
    """What one RL step shows. `actors.replay.diversity` has the formulas of entropies and distinct trajectories.

    Counts of `wasted` and rates go back to the RL step before; rates not beyond the stay's begin or a pause of the run.
    """

    lease: int
    version: Version
    stay: int  # index of the stay's first part, where a resume cut it
    stay_step: int  # from 1
    rl_step: int  # from 1, over all stays
    success: float  # of the training episodes committed since the step before, zero-variance groups among them
    success_mean: float  # mean of `success` over the stay's last ten steps
    success_batch: float  # of the trained groups alone
    action_entropy_nats: float  # over the functions of parsed actions
    call_entropy_nats: float  # over functions with their arguments
    group_call_entropy_nats: float  # the same within a group
    parsed: int  # steps of the batch whose answer was an action
    refused: int
    distinct_trajectories: float  # different sequences of actions over trajectories, per group
    coverage: float  # tasks of the train lane ever solved, over all of them
    tasks_solved: int
    wasted: dict[str, int]  # ending other than `trained` -> groups
    wasted_total: dict[str, int]
    staleness: dict[str, int]  # optimizer steps -> trajectories of the batch
    episodes_per_min: float  # train lane
    steps_per_min: float  # answers of the model, train lane
    elapsed_s: float


class Figures(Message):
    """A consistent snapshot of the ledger's counts; everything that Entropulse, progress and status show.

    At every moment groups_opened = groups_open + groups_ready + groups_leased + sum(endings).
    A stay that goes on after a resume counts as one stay.
    """

    revision: int  # grows with every change of the ledger; what WaitFigures waits on
    phase: PhaseRef
    phase_steps: int  # optimizer steps in this stay
    phase_limit: int | None  # of SetPhase.steps, and of what `total` leaves for this stay
    steps: dict[str, int]  # phase -> optimizer steps in all its stays
    stays: dict[str, int]  # phase -> stays begun
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
    groups_wasted: int  # groups that ended otherwise than trained since the last optimizer step
    successes_kept: int  # trajectories a pulse that began now would sample from
    episodes: dict[str, int]  # lane -> committed episodes
    faults: dict[str, int]  # cause -> released episodes
    train_success: list[float]  # per optimizer step of this stay: success share of episodes committed since the last
    entropy: list[float]  # per optimizer step of this stay, nats per token
    evals: list[EvalFigures]
    seats_busy: int
    staleness: dict[str, int]  # staleness -> trajectories trained so far
    tasks_resting: int = 0  # not handed out because they kept breaking episodes
    evidence: StepEvidence | None = None  # of the newest RL step
    demo_strata: dict[str, int] = {}  # family/route or family/member -> successful demonstrations stored
    demo_tasks: dict[str, int] = {}  # family/stratum -> tasks always, sometimes or never solved; {} without strata
    demo_left: int | None = None  # attempts that this stay still calls for; None outside demo stays or without strata


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


class ExportDemos(Request[DemosMoved]):
    """Write every successful demonstration to `path` (JSON lines) and its blobs file."""

    path: str


class CloseRun(Request[Done]):
    """The run is ending: parked asks are answered with `final` and nothing new opens."""
