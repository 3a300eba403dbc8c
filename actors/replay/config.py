"""Settings of the tasks, the demonstrations and the ledger. Task ids stay opaque strings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import msgspec

from actors.replay.messages import SERVING_AGAIN_S
from actors.settings import DemosConfig, SamplingConfig
from policy.advantage import AdvantageLevel
from runtime.errors import ConfigError
from runtime.settings import Section, key, tuning

PULSE_DEMOS_MOST = 1_000_000  # far more than any recording holds


EVERY = 1 << 30  # tasks: all that a task set has


class TaskRange(Section, frozen=True, kw_only=True):
    """`count` generated tasks of a family (`family/split/first` and those after it) or of all families of a suite.

    A suite's are spread evenly: over the families it trains on, or with `untrained` over those never trained on. Of a
    task set the range takes what can be played here, in the order of ids; without `count` all of it.
    """

    AT: ClassVar[str] = "tasks"

    family: Annotated[str, key("Names one task family. Give this, set or suite.")] = ""
    suite: Annotated[str, key("Names a bundled suite, or a suite file's path.")] = ""
    set: Annotated[str, tuning("Names a task set, or task files, in place of family or suite.")] = ""
    split: Annotated[str, key("Names the split: train, or held-out for evaluation. A task set has none.")] = ""
    count: Annotated[
        int, key("Sets the number of instances: of the family, or of the suite or task set in all.", ge=1)
    ] = EVERY
    first: Annotated[int, key("Sets the number of the first instance.", ge=0)] = 0
    untrained: Annotated[
        bool, tuning("Takes the suite's families that are never trained on, in place of the others.")
    ] = False

    def __post_init__(self) -> None:
        """Raises ValueError, to which msgspec adds the range's place in its file."""
        super().__post_init__()
        if sum(map(bool, (self.family, self.suite, self.set))) != 1:
            raise ValueError("a range names either a family or a suite or a task set")
        if self.set and self.split:
            raise ValueError(f"split goes with a family or a suite, task set {self.set} has none")
        if not self.set and not self.split:
            raise ValueError("split is missing: a range of a family or a suite names one")
        if not self.set and self.count == EVERY:
            raise ValueError("count is missing: a range of a family or a suite has one")
        if self.untrained and not self.suite:
            raise ValueError(f"untrained goes with a suite, not with family {self.family}")


TaskList = list[str | TaskRange]


class TasksConfig(Section, frozen=True, kw_only=True):
    """Which tasks each lane plays. Task ids or ranges of generated ones."""

    AT: ClassVar[str] = "tasks"

    train: Annotated[TaskList, key("Lists what RL plays: task ids, or ranges of generated tasks.")] = []
    eval: Annotated[TaskList, key("Lists what evaluation rounds play.")] = []
    demo: Annotated[TaskList, key("Lists what is demonstrated.")] = []
    max_turns: Annotated[int, key("Limits an episode, in answers of the model.", ge=1)] = 12


class ReplayConfig(Section, frozen=True, kw_only=True):
    """The ledger's rules."""

    AT: ClassVar[str] = "replay"

    max_staleness: Annotated[
        int, key("Limits how many versions old a batch may be. 0 lets acting and learning not overlap.", ge=0)
    ] = 1
    groups_per_step: Annotated[int, key("Sets the groups of one RL step.", ge=1)] = 4
    group_size: Annotated[int, key("Sets the episodes of one task that are compared with each other.", ge=1)] = 8
    min_group_size: Annotated[int, tuning("Drops a group with fewer played episodes than this.", ge=1)] = 4
    sft_batch_size: Annotated[int, key("Sets the steps of one batch of behaviour cloning or a pulse.", ge=1)] = 32
    curriculum: Annotated[
        Literal["none", "learnability"],
        tuning("Gives more groups to kinds of tasks with mixed success (learnability)."),
    ] = "none"
    retries: Annotated[
        int, tuning("Limits the retries of a slot or an evaluation task after infrastructure faults.", ge=0)
    ] = 2
    reservoir_per_task: Annotated[
        int, tuning("Keeps this many successful trajectories per task and RL phase.", ge=1)
    ] = 16
    pulse_per_task: Annotated[
        int, tuning("Takes at most this many successful trajectories per task into a pulse. 0 takes none.", ge=0)
    ] = 8
    pulse_demos: Annotated[
        int, key("Adds this many demonstrations to a pulse, other ones each time.", ge=0, le=PULSE_DEMOS_MOST)
    ] = 0
    keep_payload_steps: Annotated[
        int, tuning("Keeps payloads of failures for this many optimizer steps after their group.", ge=0)
    ] = 4
    sampler_silent_s: Annotated[
        float, tuning("Stops waiting for a sampler that has been silent for this many seconds.", gt=SERVING_AGAIN_S)
    ] = 180.0
    lease_s: Annotated[float, tuning("Takes an episode and its desktop back after this many seconds.", gt=0)] = 900.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_group_size > self.group_size:
            self._refuse_group()

    @property
    def rehearses_alone(self) -> bool:
        """Whether a pulse takes no trajectory, and learns the exercises of `learner.rehearsal` alone."""
        return not self.pulse_per_task and not self.pulse_demos

    def _refuse_group(self) -> None:
        usual = {field.name: field.default for field in msgspec.structs.fields(self)}
        if self.min_group_size == usual["min_group_size"]:  # who leaves that unsaid has chosen the size alone
            least = f"it is at least replay.min_group_size ({self.min_group_size}), or lower that as well"
            raise ConfigError(f"replay.group_size is {self.group_size}: {least}")
        raise ConfigError(f"replay.min_group_size is {self.min_group_size}: from 1 to group_size ({self.group_size})")


class LedgerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the replay actor is started with.

    `incarnation` differs between runs of the entry point on one run folder: a ledger opened by another incarnation
    releases what the killed one had in flight, while a restart of the actor alone keeps it.
    """

    seed: int
    train_tasks: list[str]
    demo_tasks: list[str]
    max_turns: int
    demos: DemosConfig
    rules: ReplayConfig
    sampling: SamplingConfig = SamplingConfig()
    incarnation: str = ""
    tokenizer: str = ""  # fingerprint that imported demonstrations must share; "" takes any
    format: str = ""  # of prompts and answers, likewise
    action_space: str = ""  # that the agent has, likewise
    demo_routes: dict[str, list[str]] = {}  # family -> routes that its demonstrations take in turn; none: any
    demo_members: dict[str, list[str]] = {}  # family -> demonstrators that can show its tasks
    train_kinds: list[str] = []  # of each of `train_tasks`, where a curriculum chooses among kinds; else none
    rl_steps_in_all: int | None = None  # optimizer steps over all of RL, as this incarnation says; None: no bound
    rollout_share: float = 0.0  # of RL's episodes, which an open evaluation round gets
    single_version: bool = False  # engines hold one version: no round is played while RL draws
    pulse: str = "full"  # `entropulse.pulse`
    advantage: AdvantageLevel = AdvantageLevel.STEP  # whose rewards must differ in a group for the learner to learn
    own_reward: bool = False  # `learner.rl.reward` names one: the learner alone can say what teaches

    @property
    def tries(self) -> bool:
        """Whether the supervisor tries pulses, and RL that follows RL goes on with its optimizer and its rate."""
        return self.pulse == "trials"

    def __post_init__(self) -> None:
        if self.train_kinds and len(self.train_kinds) != len(self.train_tasks):
            raise ConfigError(
                f"{len(self.train_tasks)} train tasks have {len(self.train_kinds)} kinds: one each, or none"
            )


def expand(tasks: TaskList, of_suite: Callable[[TaskRange], list[str]]) -> list[str]:
    """Task ids in order, ranges spelled out (by `of_suite` where that is no family). Raises ConfigError."""
    ids: list[str] = []
    for entry in tasks:
        if isinstance(entry, str):
            ids.append(entry)
        elif entry.suite or entry.set:
            ids.extend(of_suite(entry))
        else:
            last = entry.first + entry.count
            ids.extend(f"{entry.family}/{entry.split}/{seed}" for seed in range(entry.first, last))
    if len(set(ids)) != len(ids):
        twice = next(task for task, times in Counter(ids).items() if times > 1)
        raise ConfigError(f"tasks: {twice} is listed twice")
    return ids
