"""Means over seeds and instances: the parts of their spread, Student's quantiles, and coverage by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.statistics import RoundEpisode, gain_of_pairs, quantile95, spread

TABLES = st.tuples(st.integers(2, 5), st.integers(2, 8)).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=size[1], max_size=size[1]),
        min_size=size[0],
        max_size=size[0],
    )
)


@pytest.mark.parametrize(
    ("freedom", "wanted"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (100, 1.9840)]
)
def test_quantiles_are_those_of_tables(freedom: float, wanted: float) -> None:
    assert quantile95(freedom) == pytest.approx(wanted, abs=1e-4)
    assert quantile95(freedom + 0.5) < wanted


def test_what_varies_has_the_spread() -> None:
    seeds = spread([[0.1] * 50, [0.2] * 50, [0.3] * 50])
    assert (seeds.instances, seeds.rest, seeds.freedom) == (0.0, pytest.approx(0.0, abs=1e-9), pytest.approx(2.0))
    assert seeds.half == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4), "Student's of the three seeds' means"
    instances = spread([[0.0, 1.0] * 25] * 3)
    assert instances.seeds == 0.0
    assert instances.freedom == pytest.approx(49.0)
    assert instances.instances == pytest.approx(np.std([0.0, 1.0] * 25, ddof=1) / 50**0.5)
    assert spread([[0.5] * 4] * 2).half == 0.0
    with pytest.raises(ValueError, match="nothing to vary"):
        spread([[1.0, 2.0]])


@given(TABLES)
def test_parts_are_never_negative_and_more_freedom_than_seeds_allow_is_never_below_theirs(
    cells: list[list[float]],
) -> None:
    found = spread(cells)
    assert min(found.seeds, found.instances, found.rest, found.half) >= 0
    assert found.freedom >= len(cells) - 1
    whole = found.seeds**2 + found.instances**2 + found.rest**2
    assert found.half == pytest.approx(quantile95(found.freedom) * whole**0.5, abs=1e-6) or not whole


def played(
    rng: np.random.Generator, of_seeds: float, lift: float
) -> list[tuple[list[RoundEpisode], list[RoundEpisode]]]:
    """Rounds of three seeds over the same 60 instances, whose hardness and what is learned of them vary."""
    hard, learned = rng.normal(0.0, 0.2, 60), rng.normal(0.0, 0.15, 60)
    found = []
    for more in rng.normal(lift, of_seeds, 3):
        chances = [np.clip(0.45 + hard, 0, 1), np.clip(0.45 + hard + learned + more, 0, 1)]
        found.append(
            tuple(
                [RoundEpisode(task=f"a/held-out/{n}", success=bool(rng.random() < p)) for n, p in enumerate(c)]
                for c in chances
            )
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("of_seeds", "alone"), [(0.0, 0.93), (0.15, 0.0)])
def test_intervals_cover_the_true_difference_in_95_of_100_draws_of_seeds_and_instances(
    of_seeds: float, alone: float
) -> None:
    rng = np.random.default_rng(28)
    rounds, covered, without = 400, 0, 0
    large = [pair for _ in range(200) for pair in played(rng, of_seeds, 0.1)]
    true = float(np.mean([[b.success - a.success for a, b in zip(*pair, strict=True)] for pair in large]))
    for _ in range(rounds):
        seeds = played(rng, of_seeds, 0.1)
        found = gain_of_pairs(seeds)
        assert found.spread is not None
        covered += found.low <= true <= found.high
        pooled = [[episode for pair in seeds for episode in pair[side]] for side in (0, 1)]
        narrow = gain_of_pairs([(pooled[0], pooled[1])])
        without += narrow.low <= true <= narrow.high
    # Three standard errors of 400 draws below 0.95.
    assert covered / rounds >= 0.917
    if alone:
        assert without / rounds >= alone, "where seeds do not vary, instances alone do"
    else:
        assert without / rounds < 0.85, "where they do, instances alone say too much"
