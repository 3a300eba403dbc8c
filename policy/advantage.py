"""Step-level GRPO advantages (ComputerRL, section 5.2 of the paper's method).

Invariant: a group either has an advantage for every step or none at all; a group without variance is never
given a made-up signal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def step_rewards(*, verified: bool, well_formed: Sequence[bool]) -> list[float]:
    """r_ij of one trajectory: 1 where its verifier passed and the step's action was well formed, else 0."""
    return [1.0 if verified and formed else 0.0 for formed in well_formed]


def group_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]] | None:
    """A_ij = (r_ij - mean(R)) / std(R), R = the rewards of all steps of all trajectories of one task.

    `rewards[i][j]` is step j of trajectory i; the result has the same shape. The standard deviation is the
    population's. None when all rewards are equal (or there are none): the group has no signal.
    """
    flat = [reward for trajectory in rewards for reward in trajectory]
    if not flat or min(flat) == max(flat):
        return None
    mean = math.fsum(flat) / len(flat)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in flat) / len(flat))
    return [[(reward - mean) / std for reward in trajectory] for trajectory in rewards]
