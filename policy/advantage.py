"""Advantages of one task's group: by step (the default), by trajectory, or by both where prompts are equal (GiGPO).

A group has an advantage for every step, or for none: one without variance is never given a made-up signal, unless a
baseline from outside the group (`posterior`) says what its kind of task is like.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import NamedTuple

LEAST_SURPRISE = 0.1  # of a reward against the posterior baseline, for a group of equal rewards to be learned from


class AdvantageLevel(StrEnum):
    """What a reward belongs to, and so what mean and deviation are taken over.

    Under `step` a malformed action of a successful trajectory counts as failed. A long trajectory weighs more than a
    short one in mean and deviation. Under `trajectory` every trajectory weighs the same. All its steps share its
    advantage, malformed steps included. `gigpo` adds to that what a step is worth among the steps of equal prompts.
    """

    STEP = "step"  # the paper's
    TRAJECTORY = "trajectory"  # as GRPO is used on episodes elsewhere; for comparison
    GIGPO = "gigpo"  # Feng et al. 2025, arXiv 2505.10978

    @property
    def by_verdict(self) -> bool:
        """Whether a trajectory's verdict alone is rewarded, its malformed steps included."""
        return self is not AdvantageLevel.STEP


class Baseline(StrEnum):
    """What is taken off a reward."""

    GROUP = "group"  # the mean of the group
    LEAVE_ONE_OUT = "leave_one_out"  # the mean of the group's other trajectories (RLOO, arXiv 2402.14740)
    POSTERIOR = "posterior"  # the group's mean and its kind's success; groups of equal rewards teach (arXiv 2602.14338)


class Prior(NamedTuple):
    """What is known of a kind of task before its group is played."""

    success: float  # of the kind, strictly between 0 and 1
    weight: float  # episodes that it counts as


def step_rewards(*, verified: bool, well_formed: Sequence[bool]) -> list[float]:
    """r_ij of one trajectory: 1 where its verifier passed and the step's action was well formed, else 0."""
    return [1.0 if verified and formed else 0.0 for formed in well_formed]


def posterior(rewards: Sequence[Sequence[float]], prior: Prior) -> float:
    """(k + m p) / (n + m), with k of n trajectories' worth of reward, and a prior of success p that counts as m."""
    flat = [reward for trajectory in rewards for reward in trajectory]
    wins = len(rewards) * math.fsum(flat) / len(flat)
    return (wins + prior.weight * prior.success) / (len(rewards) + prior.weight)


def teaches(rewards: Sequence[Sequence[float]], prior: Prior | None) -> bool:
    """Whether a group has signal: its rewards differ, or are all far enough from the posterior baseline."""
    flat = [reward for trajectory in rewards for reward in trajectory]
    if not flat or min(flat) < max(flat):
        return bool(flat)
    return prior is not None and abs(flat[0] - posterior(rewards, prior)) >= LEAST_SURPRISE


def group_advantages(
    rewards: Sequence[Sequence[float]],
    *,
    scaled: bool = True,
    baseline: Baseline = Baseline.GROUP,
    prior: Prior | None = None,
) -> list[list[float]] | None:
    """A_ij = (r_ij - b_i) / std(R), R = the rewards of all steps of all trajectories of one task.

    `rewards[i][j]` is step j of trajectory i; the result has the same shape. b_i is `baseline`'s: mean(R), the mean of
    the other trajectories' rewards, or `posterior`. The deviation is the population's; with a posterior b it is that of
    one trial at b, sqrt(b (1 - b)). Without `scaled` it is left out. None when the group has no signal. Source:
    ComputerRL (arXiv 2508.14040), step-level GRPO. Raises ValueError for a posterior baseline without a prior.
    """
    flat = [reward for trajectory in rewards for reward in trajectory]
    if baseline is not Baseline.POSTERIOR:
        prior = None
    elif prior is None:
        raise ValueError("a posterior baseline needs a prior")
    if not teaches(rewards, prior) or (baseline is Baseline.LEAVE_ONE_OUT and sum(map(bool, rewards)) < 2):
        return None  # one that took no step is nothing to compare with
    total, mean = math.fsum(flat), math.fsum(flat) / len(flat)
    if prior is not None:
        mean = posterior(rewards, prior)
        spread = math.sqrt(mean * (1.0 - mean))
    else:
        spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in flat) / len(flat))
    below = [mean] * len(rewards)
    if baseline is Baseline.LEAVE_ONE_OUT:
        below = [(total - math.fsum(own)) / (len(flat) - len(own)) for own in rewards]
    divisor = spread if scaled else 1.0
    return [[(reward - less) / divisor for reward in own] for own, less in zip(rewards, below, strict=True)]


def trajectory_advantages(
    rewards: Sequence[float],
    lengths: Sequence[int],
    *,
    scaled: bool = True,
    baseline: Baseline = Baseline.GROUP,
    prior: Prior | None = None,
) -> list[list[float]] | None:
    """The same with R one reward per trajectory, shared by each of the `lengths[i]` steps of trajectory i.

    Source: GRPO (DeepSeekMath, arXiv 2402.03300) with a trajectory as the response; without the deviation, Dr. GRPO
    (arXiv 2503.20783). Raises ValueError unless every trajectory has a length.
    """
    found = group_advantages([[reward] for reward in rewards], scaled=scaled, baseline=baseline, prior=prior)
    return None if found is None else [own * length for own, length in zip(found, lengths, strict=True)]


def anchored(
    rewards: Sequence[float], prompts: Sequence[Sequence[Hashable]], discount: float, *, scaled: bool = True
) -> list[list[float]]:
    """GiGPO's second part: what a step is worth among the group's steps with the same prompt, 0 where there is none.

    `prompts[i][j]` is what step j of trajectory i was shown. Its return is discount^(L_i - 1 - j) * R_i. Of each prompt
    the returns are standardised; those of equal returns are 0.
    """
    places: dict[Hashable, list[tuple[int, int]]] = {}
    for i, own in enumerate(prompts):
        for j, prompt in enumerate(own):
            places.setdefault(prompt, []).append((i, j))
    worth = [[0.0] * len(own) for own in prompts]
    for alike in places.values():
        returns = [[discount ** (len(prompts[i]) - 1 - j) * rewards[i]] for i, j in alike]
        compared = group_advantages(returns, scaled=scaled) or [[0.0]] * len(alike)
        for (i, j), (value,) in zip(alike, compared, strict=True):
            worth[i][j] = value
    return worth


def lean(advantages: Sequence[Sequence[float]], negative_scale: float) -> list[list[float]]:
    """`advantages`, the negative ones multiplied by `negative_scale`, from 0 to 1.

    A failed trajectory holds right steps, too. The probability that a small policy takes from them goes to answers that
    were never drawn. A lower baseline has the same effect. It is safe when the same samples are learned from several
    times (Arnal et al. 2025, arXiv:2506.20520).
    """
    return [[value * negative_scale if value < 0 else value for value in trajectory] for trajectory in advantages]


def covariance(pairs: Sequence[tuple[float, float]]) -> float:
    """Population covariance; 0 of none. Of advantages and log-probabilities its sign says whether entropy will fall.

    Source: Cui et al. 2025, arXiv 2505.22617.
    """
    if not pairs:
        return 0.0
    mean = math.fsum(other for _, other in pairs) / len(pairs)
    return math.fsum(one * (other - mean) for one, other in pairs) / len(pairs)
