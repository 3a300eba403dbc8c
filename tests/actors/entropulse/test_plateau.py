"""When RL has levelled off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.entropulse.config import EntropulseConfig
from actors.entropulse.plateau import plateau, slope
from runtime.errors import ConfigError

CONFIG = EntropulseConfig(min_stay=10, window=8, patience=3, plateau_gain=0.02, entropy_share=0.5)


def curve(first: float, last: float, steps: int) -> list[float]:
    return [first + (last - first) * n / (steps - 1) for n in range(steps)]


def test_slope_of_a_line() -> None:
    assert slope([1.0, 1.5, 2.0]) == pytest.approx(0.5)
    assert slope([3.0]) == 0.0


def test_both_must_hold() -> None:
    flat, rising = [0.4] * 20, curve(0.1, 0.9, 20)
    falling, steady = curve(1.0, 0.2, 20), [1.0] * 20
    found = plateau(flat, falling, CONFIG)
    assert found is not None
    assert found["rise"] == pytest.approx(0.0)
    assert found["entropy_now"] < 0.5 * found["entropy_start"]
    assert plateau(rising, falling, CONFIG) is None
    assert plateau(flat, steady, CONFIG) is None


def test_falling_success_counts_as_levelled_off() -> None:
    assert plateau(curve(0.9, 0.4, 20), curve(1.0, 0.2, 20), CONFIG) is not None


def test_one_step_does_not_make_a_plateau() -> None:
    success = curve(0.0, 1.0, 19)
    entropy = [1.0] * 12 + [0.1] * 7
    for noisy in (0.0, 0.2):
        assert plateau([*success, noisy], [*entropy, 0.1], CONFIG) is None


@given(st.integers(0, 11))
def test_minimum_stay(steps: int) -> None:
    assert plateau([0.5] * steps, curve(1.0, 0.0, max(2, steps))[:steps], CONFIG) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(-1, 1))
def test_slope_ignores_the_level(values: list[float], level: float) -> None:
    assert slope([value + level for value in values]) == pytest.approx(slope(values), abs=1e-9)


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError):
        EntropulseConfig(window=1)
    with pytest.raises(ConfigError):
        EntropulseConfig(bc_steps=-1)
