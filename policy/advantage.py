"""Advantages of one task's group: by step (the default), or by trajectory.

A group has an advantage for every step, or for none: one without variance is never given a made-up signal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum


class AdvantageLevel(StrEnum):
    """What a reward belongs to, and so what mean and deviation are taken over.

    Under `step` a malformed action of a successful trajectory counts as failed. A long trajectory weighs more than a
    short one in mean and deviation. Under `trajectory` every trajectory weighs the same. All its steps share its
    advantage, malformed steps included.
    """

    STEP = "step"  # the paper's
    TRAJECTORY = "trajectory"  # as GRPO is used on episodes elsewhere; for comparison


class Baseline(StrEnum):
    """What is taken off a reward."""

    GROUP = "group"  # the mean of the group
    LEAVE_ONE_OUT = "leave_one_out"  # the mean of the group's other trajectories (RLOO, arXiv 2402.14740)


def step_rewards(*, verified: bool, well_formed: Sequence[bool]) -> list[float]:
    """r_ij of one trajectory: 1 where its verifier passed and the step's action was well formed, else 0."""
    return [1.0 if verified and formed else 0.0 for formed in well_formed]


def group_advantages(
    rewards: Sequence[Sequence[float]], *, scaled: bool = True, baseline: Baseline = Baseline.GROUP
) -> list[list[float]] | None:
    """A_ij = (r_ij - b_i) / std(R), R = the rewards of all steps of all trajectories of one task.

    `rewards[i][j]` is step j of trajectory i; the result has the same shape. b_i is `baseline`'s: mean(R), or the mean
    of the other trajectories' rewards. The deviation is the population's; without `scaled` it is left out. None when
    the group has no signal. Source: ComputerRL (arXiv 2508.14040), step-level GRPO.
    """
    flat = [reward for trajectory in rewards for reward in trajectory]
    if not flat or min(flat) == max(flat):
        return None
    if baseline is Baseline.LEAVE_ONE_OUT and sum(map(bool, rewards)) < 2:
        return None  # one that took no step is nothing to compare with
    total, mean = math.fsum(flat), math.fsum(flat) / len(flat)
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
) -> list[list[float]] | None:
    """The same with R one reward per trajectory, shared by each of the `lengths[i]` steps of trajectory i.

    Source: GRPO (DeepSeekMath, arXiv 2402.03300) with a trajectory as the response; without the deviation, Dr. GRPO
    (arXiv 2503.20783). Raises ValueError unless every trajectory has a length.
    """
    found = group_advantages([[reward] for reward in rewards], scaled=scaled, baseline=baseline)
    return None if found is None else [own * length for own, length in zip(found, lengths, strict=True)]


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
