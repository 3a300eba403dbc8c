"""What other actors see of the ledger: its counts, its evaluation rounds, and what its newest RL step shows.

Invariant: one transaction made all of a snapshot, so its numbers agree with each other.
"""

from __future__ import annotations

from actors.replay.values import PhaseRef
from runtime.messaging.message import Message, Value, Version


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
    task_set: str = ""  # `apis.tasks.digest` of its tasks
    max_new_tokens: int = 0
    episodes: int = 1  # per task

    @property
    def planned(self) -> int:
        """Episodes of the whole round."""
        return self.tasks * self.episodes


class StepEvidence(Value):
    """What one RL step shows. `actors.replay.statistics.diversity` has the formulas of entropies and distinct
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
    success_mean: float  # mean of `success` over the segment's last ten steps
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
    success_by_kind: dict[str, float] = {}  # of late; empty without a curriculum
    sampled_entropy_nats: float | None = None  # per token, of the same episodes as `success`; see `curriculum.played`


class Figures(Message):
    """A consistent snapshot of the ledger's counts; everything that Entropulse, progress and status show.

    At every moment groups_opened = groups_open + groups_ready + groups_leased + sum(endings).
    A segment that goes on after a resume counts as one segment.
    """

    revision: int  # grows with every change of the ledger; what WaitFigures waits on
    phase: PhaseRef
    phase_steps: int  # optimizer steps in this segment
    phase_limit: int | None  # of SetPhase.steps, and in RL of what `LedgerSettings.rl_steps` leaves for this segment
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
    rounds_wait: bool = False  # they stand back for RL (`LedgerSettings.single_version`)
    tasks_resting: int = 0  # quarantined, because they kept breaking episodes
    evidence: StepEvidence | None = None  # of the newest RL step
    demo_strata: dict[str, int] = {}  # family/route or family/member -> successful demonstrations stored
    demo_tasks: dict[str, int] = {}  # family/stratum -> tasks always, sometimes or never solved; {} without strata
    demo_left: int | None = (
        None  # attempts that this segment still calls for; None outside demonstrations or without strata
    )
