"""Step-level GRPO's advantages."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.advantage import (
    Baseline,
    covariance,
    group_advantages,
    lean,
    step_rewards,
    trajectory_advantages,
)

REWARDS = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=6)


def test_a_step_is_rewarded_when_verified_and_well_formed() -> None:
    assert step_rewards(verified=True, well_formed=[True, False, True]) == [1.0, 0.0, 1.0]
    assert step_rewards(verified=False, well_formed=[True, False]) == [0.0, 0.0]


def test_every_trajectory_weighs_the_same_where_it_is_what_is_rewarded() -> None:
    # The same outcomes, R = {1, 0}: mean 1/2, std 1/2, and all three steps of the first share its advantage.
    assert trajectory_advantages([1.0, 0.0], [3, 1]) == [[1.0, 1.0, 1.0], [-1.0]]
    # R = {1, 0, 0}: mean 1/3, std sqrt(2)/3.
    found = trajectory_advantages([1.0, 0.0, 0.0], [1, 2, 1])
    assert found is not None
    root = math.sqrt(2.0)
    assert [value for steps in found for value in steps] == pytest.approx([root, -1 / root, -1 / root, -1 / root])


def test_without_the_deviation_only_the_mean_is_taken_off() -> None:
    assert trajectory_advantages([1.0, 0.0, 0.0, 0.0], [1, 1, 1, 2], scaled=False) == [
        [0.75], [-0.25], [-0.25], [-0.25, -0.25],
    ]  # fmt: skip
    assert group_advantages([[1.0, 1.0, 1.0], [0.0]], scaled=False) == [[0.25, 0.25, 0.25], [-0.75]]


def test_left_out_of_its_own_baseline() -> None:
    # R = {1, 0, 0}: each less the mean of the other two; the deviation sqrt(2)/3 is the group's.
    found = trajectory_advantages([1.0, 0.0, 0.0], [2, 1, 1], scaled=False, baseline=Baseline.LEAVE_ONE_OUT)
    assert found == [[1.0, 1.0], [-0.5], [-0.5]]
    scaled = trajectory_advantages([1.0, 0.0, 0.0], [1, 1, 1], baseline=Baseline.LEAVE_ONE_OUT)
    assert scaled is not None
    assert [own[0] for own in scaled] == pytest.approx([3 / 2**0.5, -1.5 / 2**0.5, -1.5 / 2**0.5])
    # By step: {1, 1, 1} and {0}: 1 - 0, and 0 - 1. Nothing is left to compare one trajectory with.
    by_step = group_advantages([[1.0, 1.0, 1.0], [0.0]], scaled=False, baseline=Baseline.LEAVE_ONE_OUT)
    assert by_step == [[1.0, 1.0, 1.0], [-1.0]]
    assert group_advantages([[1.0, 0.0]], baseline=Baseline.LEAVE_ONE_OUT) is None
    assert group_advantages([[1.0, 0.0], []], baseline=Baseline.LEAVE_ONE_OUT) is None, "an episode without a step"


def test_covariance_by_hand() -> None:
    # Means 1 and -2: ((-1)(-1) + 0 + (1)(1)) / 3.
    assert covariance([(0.0, -3.0), (1.0, -2.0), (2.0, -1.0)]) == pytest.approx(2 / 3)
    assert covariance([]) == 0.0


def test_what_is_above_the_mean_is_never_scaled_down() -> None:
    assert lean([[0.5, -0.5], [0.0, -2.0]], 0.5) == [[0.5, -0.25], [0.0, -1.0]]


def test_equal_trajectories_give_no_signal() -> None:
    assert trajectory_advantages([1.0, 1.0], [2, 3]) is None
    assert trajectory_advantages([], []) is None
    with pytest.raises(ValueError):
        trajectory_advantages([1.0, 0.0], [2])


@pytest.mark.parametrize("rewards", [[], [[]], [[0.0, 0.0], [0.0]], [[1.0], [1.0, 1.0]], [[0.1] * 3, [0.1] * 7]])
def test_equal_rewards_give_no_signal(rewards: list[list[float]]) -> None:
    assert group_advantages(rewards) is None


@given(REWARDS)
def test_advantages_have_mean_zero_and_population_variance_one(rewards: list[list[float]]) -> None:
    advantages = group_advantages(rewards)
    flat = [reward for trajectory in rewards for reward in trajectory]
    if len(set(flat)) == 1:
        assert advantages is None
        return
    assert advantages is not None
    assert [len(a) for a in advantages] == [len(r) for r in rewards]
    values = [value for trajectory in advantages for value in trajectory]
    assert statistics.fmean(values) == pytest.approx(0.0, abs=1e-9)
    assert statistics.pstdev(values) == pytest.approx(1.0)
