"""Which stratum a demonstrated task falls into, and which attempt at it comes next.

Invariant: pure. A task's stratum follows from its first attempts alone and never changes afterwards; every task gets
exactly the attempts that its stratum calls for, however they overlap and whatever infrastructure breaks, unless faults
set it aside. The strata are those of the ComputerRL recipe: what is always solved is kept, what is sometimes solved is
tried again by the fine-tuned policy, and what is never solved gets each step from a random member of the pool.

One thing differs on purpose: there the base model is trained anew on the final set, here cloning goes on from the
weights that were fine-tuned for resampling, so that no step is paid for twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

MIXED = "mixed"  # in place of a member's name: each step by a random member of the pool
POLICY = "policy"  # likewise: by the fine-tuned policy
RULE = (
    "always: all of a task's {attempts} first attempts succeeded; sometimes: some did, and the fine-tuned policy tries"
    " it {resamples} times more a round; never: none did, and random members of the pool take {mixed} attempts at it"
    " step by step; aside: too many attempts were broken by infrastructure"
)


class Stratum(StrEnum):
    """How often the first attempts at a task succeeded."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    NEVER = "never"


class Stage(StrEnum):
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

    def text(self) -> str:
        """For the log."""
        return RULE.format(attempts=self.attempts, resamples=self.resamples, mixed=self.mixed)


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts of one stage at one task."""

    tries: int = 0  # that came to an outcome
    wins: int = 0
    out: int = 0


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one demonstrated task. Of an `imported` one only the policy makes more attempts."""

    task: str
    first: Tally = Tally()
    mixed: Tally = Tally()
    policy: Tally = Tally()
    faults: int = 0
    imported: bool = False

    def tally(self, stage: Stage) -> Tally:
        """That of `stage`."""
        return {Stage.FIRST: self.first, Stage.MIXED: self.mixed, Stage.POLICY: self.policy}[stage]

    @property
    def out(self) -> int:
        """Attempts in flight."""
        return self.first.out + self.mixed.out + self.policy.out


def stage_of(member: str) -> Stage:
    """The stage of an attempt by `member`."""
    return {MIXED: Stage.MIXED, POLICY: Stage.POLICY}.get(member, Stage.FIRST)


def stratum(shown: Shown, rules: Rules) -> Stratum | None:
    """Where the task belongs; None until its first attempts are over."""
    tries, wins = shown.first.tries, shown.first.wins
    if tries < (1 if shown.imported else rules.attempts):
        return None
    if wins == tries:
        return Stratum.ALWAYS
    return Stratum.SOMETIMES if wins else Stratum.NEVER


def wanted(shown: Shown, rules: Rules, rounds: int) -> dict[Stage, int]:
    """Attempts that each stage calls for in all. `rounds` of resampling have begun, 0 while the pool still plays."""
    if rounds:
        sometimes = stratum(shown, rules) is Stratum.SOMETIMES
        return {Stage.POLICY: rules.resamples * rounds if sometimes else 0}
    if shown.imported:
        return {}
    mixed = rules.mixed if stratum(shown, rules) is Stratum.NEVER else 0
    return {Stage.FIRST: rules.attempts, Stage.MIXED: mixed}


def set_aside(shown: Shown, rules: Rules, rounds: int) -> bool:
    """Whether so many attempts were broken that no more are made."""
    attempts = sum(wanted(shown, rules, rounds).values())
    if rounds and not shown.imported:  # faults are counted from the first attempt on
        attempts += shown.first.tries + shown.mixed.tries
    return shown.faults > attempts + rules.retries


def next_stage(shown: Shown, rules: Rules, rounds: int) -> Stage | None:
    """Of which stage an attempt may be handed out now; None when none is called for."""
    if set_aside(shown, rules, rounds):
        return None
    for stage, number in wanted(shown, rules, rounds).items():
        tally = shown.tally(stage)
        if tally.tries + tally.out < number:
            return stage
    return None


def left(shown: Shown, rules: Rules, rounds: int) -> int:
    """Attempts still to come to an outcome, those in flight included. 0 ends the task's part in the stay."""
    if set_aside(shown, rules, rounds):
        return shown.out
    missing = sum(
        max(number - shown.tally(stage).tries, shown.tally(stage).out)
        for stage, number in wanted(shown, rules, rounds).items()
    )
    return max(missing, shown.out)


def may_open(stored: int, pending: int, opened: int, *, count: int, most: int, attempts: int) -> bool:
    """Whether one more task may be begun.

    `stored` demonstrations are held, `pending` first attempts at begun tasks may still succeed, `opened` tasks were
    begun here; `count` demonstrations are wanted in at most `most` first attempts, `attempts` per task.
    """
    return stored + pending < count and (opened + 1) * attempts <= most


def member_of(shown: Shown, members: Sequence[str], seed: int) -> str:
    """Who makes the next first attempt: all members in turn, in an order drawn for the task.

    A broken attempt goes on to the next member, so one that can't be reached doesn't hold the task up.
    """
    order = list(members)
    random.Random(seed).shuffle(order)  # noqa: S311 - repeatable, nothing secret
    return order[(shown.first.tries + shown.first.out + shown.faults) % len(order)]


def count(found: Iterable[tuple[str, Shown, int]], rules: Rules) -> dict[str, int]:
    """`family/stratum` -> tasks, for (family, a task of it, tasks like it); `open` while first attempts go on."""
    counts: dict[str, int] = {}
    for family, shown, tasks in found:
        where = stratum(shown, rules)
        name = str(where) if where is not None else "aside" if set_aside(shown, rules, 0) else "open"
        counts[f"{family}/{name}"] = counts.get(f"{family}/{name}", 0) + tasks
    return dict(sorted(counts.items()))
