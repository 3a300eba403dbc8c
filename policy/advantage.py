"""GRPO advantages of one task's group, by step (the default) or by trajectory.

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


def step_rewards(*, verified: bool, well_formed: Sequence[bool]) -> list[float]:
    """r_ij of one trajectory: 1 where its verifier passed and the step's action was well formed, else 0."""
    return [1.0 if verified and formed else 0.0 for formed in well_formed]


def group_advantages(rewards: Sequence[Sequence[float]], *, scaled: bool = True) -> list[list[float]] | None:
    """A_ij = (r_ij - mean(R)) / std(R), R = the rewards of all steps of all trajectories of one task.

    `rewards[i][j]` is step j of trajectory i; the result has the same shape. The standard deviation is the
    population's; without `scaled` it is left out. None when all rewards are equal (or there are none): the group has
    no signal. Source: ComputerRL (arXiv 2508.14040), step-level GRPO.
    """
    advantages = _standardised([reward for trajectory in rewards for reward in trajectory], scaled=scaled)
    if advantages is None:
        return None
    values = iter(advantages)
    return [[next(values) for _ in trajectory] for trajectory in rewards]


def trajectory_advantages(
    rewards: Sequence[float], lengths: Sequence[int], *, scaled: bool = True
) -> list[list[float]] | None:
    """A_ij = (R_i - mean(R)) / std(R) for each of the `lengths[i]` steps of trajectory i, R one reward per trajectory.

    Population deviation, left out without `scaled`; None when all rewards are equal. Source: GRPO (DeepSeekMath,
    arXiv 2402.03300) with a trajectory as the response; without the deviation, Dr. GRPO (arXiv 2503.20783).
    Raises ValueError unless every trajectory has a length.
    """
    advantages = _standardised(rewards, scaled=scaled)
    if advantages is None:
        return None
    return [[value] * length for value, length in zip(advantages, lengths, strict=True)]


def lean(advantages: Sequence[Sequence[float]], negative_scale: float) -> list[list[float]]:
    """`advantages`, the negative ones multiplied by `negative_scale`, from 0 to 1.

    A failed trajectory holds right steps, too. The probability that a small policy takes from them goes to answers that
    were never drawn. A lower baseline has the same effect. It is safe when the same samples are learned from several
    times (Arnal et al. 2025, arXiv:2506.20520).
    """
    return [[value * negative_scale if value < 0 else value for value in trajectory] for trajectory in advantages]


def _standardised(rewards: Sequence[float], *, scaled: bool) -> list[float] | None:
    if not rewards or min(rewards) == max(rewards):
        return None
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)) if scaled else 1.0
    return [(reward - mean) / std for reward in rewards]
