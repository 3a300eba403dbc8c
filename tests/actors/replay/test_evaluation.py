"""Rates, pass@k and gains: published cases, properties, and coverage by simulation."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.replay.statistics import Rate, RoundEpisode, Tally, gain, gain_of_pairs, paired, pass_at, rate, summarise

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


def drawn(rng: random.Random, instances: int, episodes: int, lift: float) -> tuple[list[Tally], list[Tally], float]:
    """A round, a later one and the true gain; instances differ in how hard they are."""
    before, after, true = [], [], 0.0
    for _ in range(instances):
        p = rng.betavariate(1.0, 0.8)
        q = min(1.0, p + lift)
        true += (q - p) / instances
        before.append((sum(rng.random() < p for _ in range(episodes)), episodes))
        after.append((sum(rng.random() < q for _ in range(episodes)), episodes))
    return before, after, true


@pytest.mark.parametrize(("instances", "episodes", "lift"), [(120, 1, 0.0), (60, 1, 0.2), (40, 4, 0.1)])
@pytest.mark.slow
def test_intervals_cover_what_is_true_in_95_of_100_simulated_pairs(instances: int, episodes: int, lift: float) -> None:
    rng = random.Random(f"{instances} {episodes}")
    rounds, covered, rated = 1000, 0, 0
    expected = sum(drawn(rng, 200, 1, lift)[2] for _ in range(100)) / 100
    base = 1.0 / 1.8  # mean of the beta distribution
    for _ in range(rounds):
        before, after, _ = drawn(rng, instances, episodes, lift)
        found = paired(before, after)
        covered += found.low <= expected <= found.high
        low, high = found.before.interval
        rated += low <= base <= high
    # Three standard errors of 1,000 draws below 0.95; far above it an interval would say less than it could.
    assert 0.93 <= covered / rounds <= 0.99
    assert 0.93 <= rated / rounds <= 0.99
