"""Which demonstration comes next: by a task's stratum and attempts, or evenly over families and routes. Pure.

A task's stratum follows from its first attempts alone and never changes afterwards. Every task gets exactly the
attempts that its stratum calls for, unless faults set it aside.

The strata are as in the ComputerRL recipe. A task that is always solved is kept. The fine-tuned policy tries a task
again that is sometimes solved. In a task that is never solved a random member of the pool takes each step. One thing
differs on purpose: the recipe trains the base model again on the final set. Here cloning goes on from the weights that
were fine-tuned for resampling, so that no step is paid for twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

MIXED = "mixed"  # in place of a member's name: each step by a random member of the pool
POLICY = "policy"  # likewise: by the fine-tuned policy


class Stratum(StrEnum):
    """How often the first attempts at a task succeeded."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    NEVER = "never"


class AttemptStage(StrEnum):
    """Why an attempt is made."""

    FIRST = "first"  # by the members of the pool in turn
    MIXED = "mixed"
    POLICY = "policy"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How many attempts a task gets."""

    attempts: int  # first ones, by members of the pool
    mixed: int  # at a task that was never solved
    resamples: int  # by the policy at a task that was sometimes solved, in each round
    retries: int  # faults of infrastructure beyond the number of attempts before a task is set aside


class AttemptTally(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of one stage at one task."""

    tries: int = 0  # that came to an outcome
    wins: int = 0
    out: int = 0


class DemoTask(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one demonstrated task. Of an `imported` one only the policy makes more attempts."""

    task: str
    first: AttemptTally = AttemptTally()
    mixed: AttemptTally = AttemptTally()
    policy: AttemptTally = AttemptTally()
    faults: int = 0
    imported: bool = False

    def tally(self, stage: AttemptStage) -> AttemptTally:
        return {AttemptStage.FIRST: self.first, AttemptStage.MIXED: self.mixed, AttemptStage.POLICY: self.policy}[stage]

    @property
    def out(self) -> int:
        return self.first.out + self.mixed.out + self.policy.out


def stage_of(member: str) -> AttemptStage:
    """The stage of an attempt by `member`."""
    return {MIXED: AttemptStage.MIXED, POLICY: AttemptStage.POLICY}.get(member, AttemptStage.FIRST)


def stratum(demo_task: DemoTask, rules: Rules) -> Stratum | None:
    """Where the task belongs; None until its first attempts are over."""
    tries, wins = demo_task.first.tries, demo_task.first.wins
    if tries < (1 if demo_task.imported else rules.attempts):
        return None
    if wins == tries:
        return Stratum.ALWAYS
    return Stratum.SOMETIMES if wins else Stratum.NEVER


def wanted(demo_task: DemoTask, rules: Rules, rounds: int) -> dict[AttemptStage, int]:
    """Attempts that each stage calls for in all. `rounds` of resampling have begun, 0 while the pool still plays."""
    if rounds:
        sometimes = stratum(demo_task, rules) is Stratum.SOMETIMES
        return {AttemptStage.POLICY: rules.resamples * rounds if sometimes else 0}
    if demo_task.imported:
        return {}
    mixed = rules.mixed if stratum(demo_task, rules) is Stratum.NEVER else 0
    return {AttemptStage.FIRST: rules.attempts, AttemptStage.MIXED: mixed}


def set_aside(demo_task: DemoTask, rules: Rules, rounds: int) -> bool:
    """Whether so many attempts were broken that no more are made."""
    attempts = sum(wanted(demo_task, rules, rounds).values())
    if rounds and not demo_task.imported:  # faults are counted from the first attempt on
        attempts += demo_task.first.tries + demo_task.mixed.tries
    return demo_task.faults > attempts + rules.retries


def next_stage(demo_task: DemoTask, rules: Rules, rounds: int) -> AttemptStage | None:
    """Of which stage an attempt may be handed out now; None when none is called for."""
    if set_aside(demo_task, rules, rounds):
        return None
    for stage, number in wanted(demo_task, rules, rounds).items():
        tally = demo_task.tally(stage)
        if tally.tries + tally.out < number:
            return stage
    return None


def left(demo_task: DemoTask, rules: Rules, rounds: int) -> int:
    """Attempts still to come to an outcome, those in flight included. 0 ends the task's part in the segment."""
    if set_aside(demo_task, rules, rounds):
        return demo_task.out
    missing = sum(
        max(number - demo_task.tally(stage).tries, demo_task.tally(stage).out)
        for stage, number in wanted(demo_task, rules, rounds).items()
    )
    return max(missing, demo_task.out)


def may_open(stored: int, pending: int, opened: int, *, count: int, most: int, attempts: int) -> bool:
    """Whether one more task may be begun.

    `stored` demonstrations are held, `pending` first attempts at begun tasks may still succeed, `opened` tasks were
    begun here; `count` demonstrations are wanted in at most `most` first attempts, `attempts` per task.
    """
    return stored + pending < count and (opened + 1) * attempts <= most


def member_of(demo_task: DemoTask, members: Sequence[str], seed: int) -> str:
    """Who makes the next first attempt: all members in turn, in an order drawn for the task.

    A broken attempt goes on to the next member, so one that can't be reached doesn't hold the task up.
    """
    order = list(members)
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable, nothing secret
    return order[(demo_task.first.tries + demo_task.first.out + demo_task.faults) % len(order)]


def count(alike: Iterable[tuple[str, DemoTask, int]], rules: Rules) -> dict[str, int]:
    """`family/stratum` -> tasks, for (family, a task of it, tasks like it); `open` while first attempts go on."""
    counts: dict[str, int] = {}
    for family, demo_task, tasks in alike:
        where = stratum(demo_task, rules)
        name = str(where) if where is not None else "aside" if set_aside(demo_task, rules, 0) else "open"
        counts[f"{family}/{name}"] = counts.get(f"{family}/{name}", 0) + tasks
    return dict(sorted(counts.items()))


class TaskStratum(NamedTuple):
    """Tasks of one family by one route. `route` "" leaves the choice to the demonstrator."""

    family: str
    route: str
    tasks: list[str]

    @property
    def name(self) -> str:
        return name_of(self.family, self.route)


def name_of(family: str, route: str) -> str:
    """`family/route`."""
    return f"{family}/{route}"


def family_of(task: str) -> str:
    """What is before an id's first slash, "" where there is none."""
    return task.partition("/")[0] if "/" in task else ""


def strata(tasks: Sequence[str], routes: Mapping[str, Sequence[str]]) -> list[TaskStratum]:
    """The strata of `tasks`, in order of appearance; a family without `routes` has one stratum."""
    by_family: dict[str, list[str]] = {}
    for task in tasks:
        by_family.setdefault(family_of(task), []).append(task)
    return [
        TaskStratum(family, route, listed)
        for family, listed in by_family.items()
        for route in (routes.get(family) or ("",))
    ]


def order(
    among: Sequence[TaskStratum], stored: Mapping[str, int], tried: Mapping[str, int], most: int
) -> list[TaskStratum]:
    """`among` in the order in which they should be tried next.

    `stored` are demonstrations stored or in flight and `tried` those handed out, by stratum; `most` attempts in all.
    """
    share = -(-most // max(1, len(among)))
    return sorted(
        among,
        key=lambda each: (tried.get(each.name, 0) >= share, stored.get(each.name, 0), tried.get(each.name, 0)),
    )
