"""Rates, pass@k, gains and scores: published cases, properties, and coverage by simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.statistics import (
    TIMED_OUT,
    Rate,
    RoundEpisode,
    Tally,
    gain,
    gain_of_pairs,
    paired,
    pass_at,
    quantile95,
    rate,
    side_by_side,
    spread,
    summarise,
)

TALLIES = st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=30)
EPISODES = st.lists(
    st.builds(
        lambda family, n, kind: RoundEpisode(task=f"{family}/held-out/{n}", **kind),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 5),
        st.sampled_from([{}, {"success": True}, {"feasible": False}, {"fault": True}]),
    ),
    max_size=40,
)


def of_cells(both: int, lost: int, won: int, neither: int) -> tuple[list[Tally], list[Tally]]:
    """Before and after from the four cells of a paired table."""
    before = [(1, 1)] * (both + lost) + [(0, 1)] * (won + neither)
    after = [(1, 1)] * both + [(0, 1)] * lost + [(1, 1)] * won + [(0, 1)] * neither
    return before, after


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        ((36, 12, 2, 0), 0.0569, 0.3404),  # published with method 10
        ((53, 0, 0, 1), -0.0729, 0.0729),  # by hand: no pair changed, and the interval still has a width
    ],
)
def test_paired_interval_of_known_cases(cells: tuple[int, int, int, int], low: float, high: float) -> None:
    before, after = of_cells(*cells)
    found = paired(after, before)  # the published difference is that of the first rating minus the second
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.slow
@given(TALLIES)
def test_a_rate_lies_in_its_interval_and_clusters_widen_it(tallies: list[Tally]) -> None:
    found = rate(tallies)
    low, high = found.interval
    assert 0.0 <= low <= found.value <= high <= 1.0
    plain = Rate(found.successes, found.n).interval
    assert low <= plain[0] + 1e-12
    assert high >= plain[1] - 1e-12
    if all(n == 1 for _, n in tallies):
        assert (low, high) == plain


@given(st.lists(st.tuples(st.tuples(st.integers(0, 2), st.just(2)), st.tuples(st.integers(0, 2), st.just(2)))))
def test_a_gain_lies_in_its_interval_and_turns_around(pairs: list[tuple[Tally, Tally]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    there, back = paired(before, after), paired(after, before)
    assert -1.0 <= there.low <= there.value <= there.high <= 1.0
    assert there.value == pytest.approx(-back.value)
    assert there.low == pytest.approx(-back.high)


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_pass_at_k_is_the_share_of_draws_with_a_success(tally: Tally) -> None:
    won, played = tally
    for k in range(1, played + 1):
        draws = list(combinations([True] * won + [False] * (played - won), k))
        assert pass_at([tally], k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_at([tally], played + 1) is None


@given(EPISODES)
def test_denominators_families_and_faults_add_up(episodes: list[RoundEpisode]) -> None:
    found = summarise(episodes, untrained=["c"])
    whole = found.whole
    assert whole.all.n == len(episodes) == found.episodes
    assert whole.without_faults.n == found.episodes - found.faults
    assert whole.all.n - whole.feasible.n == sum(not episode.feasible for episode in episodes)
    assert sum(rates.all.successes for rates in found.families.values()) == whole.all.successes
    assert found.trained.all.n + found.untrained.all.n == whole.all.n
    assert found.untrained.all == found.families["c"].all if "c" in found.families else not found.untrained.all.n
    values = list(found.pass_at.values())
    assert all(0.0 <= value <= 1.0 for value in values)


def test_instances_that_faulted_leave_the_gain_and_are_counted() -> None:
    before = [RoundEpisode(task="a/held-out/0"), RoundEpisode(task="a/held-out/1", success=True)]
    after = [RoundEpisode(task="a/held-out/0", success=True), RoundEpisode(task="a/held-out/1", fault=True)]
    found = gain(before, after)
    assert (found.value, found.instances, found.left_out) == (1.0, 1, 1)
    half = [RoundEpisode(task="a/held-out/0", success=True), RoundEpisode(task="a/held-out/0", fault=True)]
    whole = [RoundEpisode(task="a/held-out/1"), RoundEpisode(task="a/held-out/1", success=True)]
    found = gain([*half, *whole], [*half[:1], *half[:1], *whole])  # of two episodes, one with a fault
    assert (found.value, found.instances, found.left_out) == (0.0, 1, 1)
    found = gain_of_pairs([([*half, *whole], [*half, *whole]), ([*half[:1], *whole], [*half[:1], *whole])])
    assert (found.instances, found.before.n, found.left_out) == (1, 4, 1)  # of two seeds, one with a fault
    empty = gain(before, [])
    assert (empty.low, empty.high, empty.instances, empty.left_out) == (-1.0, 1.0, 0, 2)


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


SCORED = [
    RoundEpisode(task="s/a", success=True, reason="verified", score=1.0),
    RoundEpisode(task="s/b", reason=TIMED_OUT, score=1.0),  # right, and not claimed
    RoundEpisode(task="s/c", feasible=False, reason=TIMED_OUT),
    RoundEpisode(task="s/d", success=True, feasible=False, reason="verified", score=1.0),
    RoundEpisode(task="s/e", reason="not_verified", score=0.25),
    RoundEpisode(task="s/f", reason="agent_gave_up"),
    RoundEpisode(task="s/g", fault=True),
]


def test_scores_differ_by_what_a_time_out_is() -> None:
    found = {one.name: (one.whole.successes, one.whole.n, one.feasible.successes, one.infeasible.successes)
             for one in side_by_side(SCORED)}  # fmt: skip
    assert found == {
        "strict": (2, 6, 1, 1),
        "osworld": (3.25, 6, 2.25, 1),
        "published": (3.25, 6, 1.25, 2),
        "never ending, published": (2, 6, 0, 2),
        "giving up at once": (2, 6, 0, 2),
    }
