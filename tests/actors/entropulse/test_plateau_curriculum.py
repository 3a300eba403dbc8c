"""The trigger on curves as the ledger tells them while a curriculum chooses: success that still rises fires nothing.

A stand-in for long runs: policies whose success at 21 kinds of task, as many as the main job has, rises together; the
choice of kinds, the windows it goes by and what a step says are the real ones.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence

import pytest

from actors.entropulse.config import EntropulseConfig
from actors.entropulse.decide import fit, plateau
from actors.replay.ledger.task_choice import WINDOW, KindTally, of_mixture, order, weights

CONFIG = EntropulseConfig()
KINDS = 21
SIZES = {f"kind {n}": 40 + n for n in range(KINDS)}
GROUPS, EPISODES = 5, 8  # a step's


def told(seed: int, mean: Sequence[float]) -> list[float]:
    """What each step says of success, where the mean over all tasks is `mean`."""
    rng = random.Random(seed)
    odds = {kind: rng.gauss(0, 1) for kind in SIZES}
    last: deque[tuple[str, bool]] = deque(maxlen=WINDOW * KINDS)
    found = []
    for wanted in mean:
        success = _at(odds, wanted)
        before = _tallied(last)
        now = []
        for _ in range(GROUPS):
            kind = order(weights(SIZES, before), rng.getrandbits(62))[0]
            now += [(kind, rng.random() < success[kind]) for _ in range(EPISODES)]
        played = of_mixture(_tallied(now), before)
        assert played is not None
        found.append(played.success)
        last.extend(now)
    return found


def _at(odds: dict[str, float], wanted: float) -> dict[str, float]:
    """Success by kind: log odds shifted alike, so that the mean over all tasks is `wanted`."""
    low, high = -10.0, 10.0
    for _ in range(30):
        shift = (low + high) / 2
        success = {kind: 1 / (1 + math.exp(-value - shift)) for kind, value in odds.items()}
        if sum(SIZES[kind] * success[kind] for kind in SIZES) < wanted * sum(SIZES.values()):
            low = shift
        else:
            high = shift
    return success


def _tallied(episodes: Sequence[tuple[str, bool]] | deque[tuple[str, bool]]) -> dict[str, KindTally]:
    found: dict[str, KindTally] = {}
    for kind, won in episodes:
        tally = found.get(kind, KindTally())
        found[kind] = KindTally(tally.wins + won, tally.tries + 1)
    return found


def fires(success: list[float], seed: int) -> bool:
    """Whether a pulse would begin, where entropy has fallen as far as it must."""
    rng = random.Random(seed)
    entropy = [0.15 * math.exp(-0.02 * n + rng.gauss(0, 0.1)) for n in range(len(success))]
    return any(
        plateau(success[:end], entropy[:end], CONFIG) is not None
        for end in range(CONFIG.min_phase_steps, len(success) + 1, 4)
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.15, 0.4])
def test_success_that_gains_the_margin_fires_nothing_under_a_curriculum(start: float) -> None:
    mean = [start + CONFIG.plateau_gain * n / CONFIG.plateau_window for n in range(100)]
    assert not [seed for seed in range(8) if fires(told(seed, mean), seed)]


@pytest.mark.slow
def test_what_steps_say_is_right_on_average_and_errs_independently() -> None:
    mean = [0.2 + 0.004 * n for n in range(150)]
    errors = [value - wanted for seed in range(6) for value, wanted in zip(told(seed, mean), mean, strict=True)]
    assert abs(sum(errors) / len(errors)) < 0.03
    slope, _, noise, correlation = fit(errors[:150])
    assert abs(slope) * CONFIG.plateau_window < 0.03
    assert noise > 0.05
    assert correlation < 0.25
