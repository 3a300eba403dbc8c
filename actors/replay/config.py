"""Settings of the tasks, the demonstrations and the ledger.

Invariant: what an actor gets is plain data with every task spelled out; task ids stay opaque strings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from actors.replay.messages import SERVING_AGAIN_S
from runtime.errors import ConfigError

COLDEST = 1e-6  # SGLang and the embedded engine draw greedily below this temperature
NEW_TOKENS_MOST = 1 << 17  # a plan knows the model and its narrower bound
PULSE_DEMOS_MOST = 1_000_000  # far more than any recording holds


class TaskRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`count` generated tasks of a family (`family/split/first` and those after it) or of all families of a suite.

    A suite's are spread evenly: over the families it trains on, or with `untrained` over those never trained on.
    """

    split: str  # train, or held-out for evaluation
    count: int  # instances: of the family, or of the suite in all
    first: int = 0  # number of the first instance
    family: str = ""  # one family; or else a suite
    suite: str = ""  # a bundled suite's name or a suite file's path
    untrained: bool = False  # of a suite, its families that are never trained on in place of the others

    def __post_init__(self) -> None:
        if bool(self.family) is bool(self.suite):
            raise ConfigError("tasks: a range names either a family or a suite")
        if self.untrained and not self.suite:
            raise ConfigError(f"tasks: untrained goes with a suite, not with family {self.family}")


TaskList = list[str | TaskRange]


class TasksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which tasks each lane plays. Task ids or ranges of generated ones."""

    train: TaskList = []  # what RL plays
    eval: TaskList = []  # what evaluation rounds play
    demo: TaskList = []  # what is demonstrated
    max_steps: int = 12  # model answers per episode

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ConfigError(f"tasks.max_steps is {self.max_steps}: it counts from 1")
        # Here and not in the range itself, which does not know its place in the file.
        for lane in ("train", "eval", "demo"):
            for place, entry in enumerate(getattr(self, lane)):
                if isinstance(entry, TaskRange):
                    _refuse_empty(entry, f"tasks.{lane}.{place}")


def _refuse_empty(entry: TaskRange, key: str) -> None:
    if entry.count < 1:
        raise ConfigError(f"{key}.count is {entry.count}: it counts from 1, a range holds at least one task")
    if entry.first < 0:
        raise ConfigError(f"{key}.first is {entry.first}: tasks are numbered from 0")


class DemosConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the cold start's demonstrations come from."""

    count: int = 64  # successful demonstrations before behaviour cloning begins
    attempts_per_demo: float = 4.0  # recording stops, whatever it got, after count times this many attempts
    source: str = ""  # recorded demonstrations to begin from: a run (name or folder), a .jsonl or a .parquet file
    attempts: int = 0  # at every task, by the pool's members in turn, before its stratum is known; 0: without strata
    mixed_attempts: int = 2  # at a task that was never solved, each step by a random member of the pool
    resample_rounds: int = 0  # after cloning, the policy tries what was sometimes solved, and is then cloned again
    resamples: int = 2  # the policy's attempts per task that was sometimes solved, and round of resampling

    def __post_init__(self) -> None:
        for name in ("count", "attempts", "mixed_attempts", "resample_rounds", "resamples"):
            if getattr(self, name) < 0:
                raise ConfigError(f"demos.{name} is {getattr(self, name)}: it counts, from 0")
        if not 0 < self.attempts_per_demo < math.inf:
            raise ConfigError(f"demos.attempts_per_demo is {self.attempts_per_demo}: it is above 0")
        if self.resample_rounds and not (self.attempts and self.resamples):
            raise ConfigError("demos.resample_rounds goes with demos.attempts and demos.resamples of at least 1")


class ReplayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ledger's rules."""

    max_staleness: int = 1  # S, versions; 0 gives no overlap of acting and learning
    groups_per_step: int = 4  # groups of one RL step
    group_size: int = 8  # G: episodes of one task that are compared with each other
    group_min: int = 4  # G_min: with fewer episodes than this a group is lost
    retries: int = 2  # per slot or evaluation task, after infrastructure faults
    curriculum: Literal["none", "learnability"] = "none"  # whether mixed success earns a kind of task more groups
    temperature: float = 1.0  # of the train lane
    max_new_tokens: int = 96  # tokens of one answer at the most
    samples_per_step: int = 32  # steps per cross-entropy batch (behaviour cloning and pulse)
    reservoir_per_task: int = 16  # successful trajectories kept per RL stay and task
    pulse_per_task: int = 8  # successful trajectories of the reservoir that go into a pulse, at most so many per task
    pulse_tasks: Literal["all", "unmastered"] = "all"  # or only those of which an episode failed in its stay
    pulse_demos: int = 0  # demonstrations that a pulse learns beside RL's successes, other ones each time
    keep_payload_steps: int = 4  # optimizer steps that payloads of failures outlive their group
    disk_gib: float = 0.0  # of the run's folder; beyond it the oldest successes' payloads go first; 0: no bound
    sampler_silent_s: float = 180.0  # a sampler that has said nothing for so long holds admission back no more
    reservation_s: float = 900.0  # one neither committed nor released by then is taken back, and so is its desktop

    def __post_init__(self) -> None:
        for name, least, most in (("max_new_tokens", 1, NEW_TOKENS_MOST), ("pulse_demos", 0, PULSE_DEMOS_MOST)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"replay.{name} is {getattr(self, name)}: it counts from {least} to {most}")
        for name in ("retries", "keep_payload_steps"):
            if getattr(self, name) < 0:
                raise ConfigError(f"replay.{name} is {getattr(self, name)}: it counts, from 0")
        if self.max_staleness < 0:
            raise ConfigError(f"replay.max_staleness is {self.max_staleness}: it counts steps, from 0")
        for name in ("groups_per_step", "samples_per_step", "reservoir_per_task", "pulse_per_task", "group_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"replay.{name} is {getattr(self, name)}: it counts from 1")
        if not 1 <= self.group_min <= self.group_size:
            self._refuse_group()
        if not 0 <= self.disk_gib < math.inf:
            raise ConfigError(f"replay.disk_gib is {self.disk_gib}: GiB, from 0, which sets no bound")
        if not 0 < self.reservation_s < math.inf:
            raise ConfigError(f"replay.reservation_s is {self.reservation_s}: it is above 0")
        if not SERVING_AGAIN_S < self.sampler_silent_s < math.inf:
            raise ConfigError(
                f"replay.sampler_silent_s is {self.sampler_silent_s}: it is above the {SERVING_AGAIN_S:g} s after which"
                " a sampler speaks again"
            )
        if not COLDEST <= self.temperature < math.inf:
            raise ConfigError(
                f"replay.temperature is {self.temperature}: at least {COLDEST:g}, for RL never samples greedily"
            )

    def _refuse_group(self) -> None:
        usual = {field.name: field.default for field in msgspec.structs.fields(self)}
        if self.group_min == usual["group_min"]:  # who leaves that unsaid has chosen the size alone
            least = f"it is at least replay.group_min ({self.group_min}), or lower that as well"
            raise ConfigError(f"replay.group_size is {self.group_size}: {least}")
        raise ConfigError(f"replay.group_min is {self.group_min}: from 1 to group_size ({self.group_size})")


class LedgerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the replay actor is started with.

    `incarnation` differs between runs of the entry point on one run folder: a ledger opened by another incarnation
    releases what the killed one had in flight, while a restart of the actor alone keeps it.
    """

    seed: int
    train_tasks: list[str]
    demo_tasks: list[str]
    max_steps: int
    demos: DemosConfig
    rules: ReplayConfig
    incarnation: str = ""
    tokenizer: str = ""  # fingerprint that imported demonstrations must share; "" takes any
    form: str = ""  # of prompts and answers, likewise
    actions: str = ""  # that the agent has, likewise
    demo_routes: dict[str, list[str]] = {}  # family -> routes that its demonstrations take in turn; none: any
    demo_members: dict[str, list[str]] = {}  # family -> demonstrators that can show its tasks
    train_kinds: list[str] = []  # of each of `train_tasks`, where a curriculum chooses among kinds; else none
    rl_steps: int | None = None  # optimizer steps over all stays in RL, as this incarnation says; None: no bound
    eval_one_in: int = 0  # `evaluation.one_in`
    eval_apart: bool = False  # engines hold one version: no round is played while RL draws
    keeps_optimizer: bool = False  # where a stay of RL follows one of RL: the reference alone is renewed
    signal: str = "step"  # what must differ in a group for the learner to learn from it: "step" or "trajectory" rewards

    def __post_init__(self) -> None:
        if self.train_kinds and len(self.train_kinds) != len(self.train_tasks):
            raise ConfigError(
                f"{len(self.train_tasks)} train tasks have {len(self.train_kinds)} kinds: one each, or none"
            )


def expand(tasks: TaskList, of_suite: Callable[[TaskRange], list[str]]) -> list[str]:
    """Task ids in order, ranges spelled out (a suite's by `of_suite`). Raises ConfigError when an id comes twice."""
    ids: list[str] = []
    for entry in tasks:
        if isinstance(entry, str):
            ids.append(entry)
        elif entry.suite:
            ids.extend(of_suite(entry))
        else:
            last = entry.first + entry.count
            ids.extend(f"{entry.family}/{entry.split}/{seed}" for seed in range(entry.first, last))
    if len(set(ids)) != len(ids):
        twice = next(task for task, times in Counter(ids).items() if times > 1)
        raise ConfigError(f"tasks: {twice} is listed twice")
    return ids
