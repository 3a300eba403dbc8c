"""When success has levelled off and entropy has fallen."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.entropulse.config import EntropulseConfig
from actors.entropulse.curves import fit, measured, plateau, quantile, successive_noise
from tests.proofs import proofs

CONFIG = EntropulseConfig()
SERIES = Path(__file__).parent / "series"
LONG = 180  # steps: the length of a stay in the publication


class Curves(msgspec.Struct):
    """One value per step of a stay."""

    success: list[float]
    entropy: list[float]


def recorded(name: str, stay: str) -> Curves:
    """Those of a stay of a real run."""
    return msgspec.convert(json.loads((SERIES / f"{name}.json").read_bytes())[stay], Curves)


# Of a job with one counted pulse, and of a stay that its own curves ended.
COUNTED = [recorded("recorded_local", stay) for stay in ("before_pulse", "after_pulse")]
FIRED = recorded("recorded_long", "stay")


def residuals(values: Sequence[float]) -> list[float]:
    """What a line leaves of `values`."""
    slope, *_ = fit(values)
    mean, middle = sum(values) / len(values), (len(values) - 1) / 2
    return [y - mean - slope * (x - middle) for x, y in enumerate(values)]


NOISE = [value for stay in COUNTED for value in residuals(stay.success)]
LOG_NOISE = [value for stay in COUNTED for value in residuals([math.log(level) for level in stay.entropy])]


def simulated(
    seed: str,
    success: Callable[[int], float],
    log_entropy: Callable[[int], float],
    steps: int = LONG,
    correlation: float = 0.0,
    noises: tuple[list[float], list[float]] = (NOISE, LOG_NOISE),
) -> Curves:
    """A stand-in for long runs, each of which takes an hour: given means, and a recorded run's own noise.

    Residuals of the recorded curves are drawn with replacement, so their size and shape are real; `correlation` ties
    each step's to the one before without changing their size.
    """
    rng = random.Random(seed)

    def noise(kind: list[float]) -> list[float]:
        found, last = [], rng.choice(kind)
        for _ in range(steps):
            found.append(last)
            last = correlation * last + math.sqrt(1 - correlation**2) * rng.choice(kind)
        return found

    return Curves(
        [min(1.0, max(0.0, success(n) + error)) for n, error in enumerate(noise(noises[0]))],
        [math.exp(log_entropy(n) + error) for n, error in enumerate(noise(noises[1]))],
    )


def fires_at(curves: Curves, config: EntropulseConfig = CONFIG) -> int | None:
    """The first step at which a supervisor would begin a pulse."""
    for end in range(config.min_phase_steps, len(curves.success) + 1):
        if plateau(curves.success[:end], curves.entropy[:end], config) is not None:
            return end
    return None


def ever(curves: Curves, every: int = 3) -> bool:
    """As `fires_at`, at every third step: a plateau holds for longer than that."""
    ends = range(CONFIG.min_phase_steps, len(curves.success) + 1, every)
    return any(plateau(curves.success[:end], curves.entropy[:end], CONFIG) is not None for end in ends)


def saturating(step: int) -> float:
    """From 0.30 to 0.70."""
    return 0.3 + 0.4 * (1 - math.exp(-step / 25))


def falling(step: int) -> float:
    """To a quarter of its start within sixty steps."""
    return math.log(0.4) - math.log(4) * min(1, step / 60)


def fallen_at_once(step: int) -> float:
    """So that success alone decides."""
    return math.log(0.1) - math.log(5) * (step >= CONFIG.plateau_window // 2)


def at_the_margin(step: int) -> float:
    """Still gaining exactly as much as ends a plateau."""
    return 0.15 + CONFIG.plateau_gain * step / CONFIG.plateau_window


# -- what must fire


def test_the_recorded_long_run_fires_where_its_supervisor_began_the_pulse() -> None:
    assert fires_at(FIRED) == len(FIRED.success), "the step after which the run's supervisor began the pulse"
    found = plateau(FIRED.success, FIRED.entropy, CONFIG)
    assert found is not None
    assert (found["stay_steps"], found["held"]) == (len(FIRED.success), CONFIG.plateau_patience)
    assert (round(found["rise"], 2), round(found["entropy_ratio"], 2)) == (0.02, 0.34)


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_long_simulated_run_fires_after_it_has_levelled_off(seed: str) -> None:
    at = fires_at(simulated(seed, saturating, falling))
    assert at is not None
    # The true gain per window is below the margin from step 38 on (0.4 e^(-n/25) (1 - e^(-20/25)) = 0.05).
    assert 38 < at <= 170


def test_without_noise_the_numbers_speak_for_themselves() -> None:
    flat, rising = [0.4] * 60, [0.1 + 0.01 * n for n in range(60)]
    entropy = [1.0] * 10 + [0.2] * 50
    assert plateau(flat, entropy, CONFIG) is not None
    assert plateau(rising, entropy, CONFIG) is None
    assert plateau(flat, [1.0] * 60, CONFIG) is None
    assert plateau([0.9 - 0.005 * n for n in range(60)], entropy, CONFIG) is not None, "falling is no gain either"


# -- what must not fire


def test_the_recorded_run_had_not_levelled_off() -> None:
    """Sixty real steps: success still rose and entropy had hardly moved."""
    for stay in COUNTED:
        assert fires_at(stay) is None
        found = measured(stay.success, stay.entropy, CONFIG)
        assert found["entropy_ratio"] > CONFIG.entropy_share
        assert found["rise_upper"] > CONFIG.plateau_gain


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, *proofs(40)])
def test_false_alarms_are_as_rare_as_is_aimed_for(count: int) -> None:
    for correlation, most in ((0.0, 0.05), (0.3, 0.10)):
        runs = [simulated(f"{correlation} {n}", at_the_margin, fallen_at_once, 180, correlation) for n in range(count)]
        assert sum(map(ever, runs)) / len(runs) <= most


@pytest.mark.parametrize("count", [5, *proofs(40)])
@pytest.mark.slow
def test_entropy_at_its_threshold_does_not_fire(count: int) -> None:
    runs = [
        simulated(f"entropy {n}", lambda _: 0.7, lambda n: -math.log(2) * min(1, n / CONFIG.plateau_window))
        for n in range(count)
    ]
    assert sum(map(ever, runs)) / len(runs) <= 0.05


@given(st.integers(0, CONFIG.min_phase_steps + CONFIG.plateau_patience - 2))
def test_minimum_stay_and_patience(steps: int) -> None:
    assert plateau([0.5] * steps, ([1.0] * 10 + [0.1] * steps)[:steps], CONFIG) is None


def test_hysteresis() -> None:
    """One step that no longer refutes chance does not end a plateau; a fitted rise of `plateau_gain` does."""
    config = EntropulseConfig(plateau_patience=4)
    entropy = [1.0] * 10 + [0.1] * 40
    success = [0.5] * 40
    jolted = [*success, 0.6]
    assert (
        measured(jolted, entropy, config)["rise_upper"]
        > config.plateau_gain
        > measured(jolted, entropy, config)["rise"]
    )
    assert plateau(jolted, entropy, config) is not None
    climbing = [*success, 0.7, 0.9, 1.0]
    assert measured(climbing, entropy, config)["rise"] > config.plateau_gain
    assert plateau(climbing, entropy, config) is None


# -- the parts


def test_fit_by_hand() -> None:
    slope, error, noise, correlation = fit([0.0, 1.0, 0.0, 1.0])
    # Slope 0.2 through mean 0.5; residuals -0.2, 0.6, -0.6, 0.2; s^2 = 0.8 / 2; neighbours are opposed.
    assert (slope, noise, correlation) == pytest.approx((0.2, math.sqrt(0.4), 0.0))
    assert error == pytest.approx(math.sqrt(0.4 / 5))
    assert fit([1.0, 2.0])[1] == math.inf


def test_a_slow_fall_is_no_noise() -> None:
    assert successive_noise([5.0 - 0.1 * n for n in range(50)]) == pytest.approx(0.0, abs=1e-12)
    rng = random.Random(1)
    assert successive_noise([rng.gauss(0, 0.3) - 0.01 * n for n in range(2000)]) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize(("freedom", "known"), [(10, 4.587), (18, 3.922), (30, 3.646), (120, 3.373)])
def test_quantile_of_students_t(freedom: int, known: float) -> None:
    """Against tables of the one-sided 0.05 % point."""
    assert quantile(freedom) == pytest.approx(known, rel=0.02)
    assert quantile(0) == math.inf
