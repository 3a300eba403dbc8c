"""Scores side by side: what a time-out counts as tells them apart, and trivial policies stand beside them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.replay.statistics import TIMED_OUT, RoundEpisode, side_by_side

EPISODES = [
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
             for one in side_by_side(EPISODES)}  # fmt: skip
    assert found == {
        "strict": (2, 6, 1, 1),
        "osworld": (3.25, 6, 2.25, 1),
        "published": (3.25, 6, 1.25, 2),
        "never ending, published": (2, 6, 0, 2),
        "giving up at once": (2, 6, 0, 2),
    }


@given(st.lists(st.sampled_from(EPISODES), max_size=12))
def test_no_score_is_below_strict_and_denominators_agree(episodes: list[RoundEpisode]) -> None:
    strict, osworld, published, *trivial = side_by_side(episodes)
    assert min(osworld.whole.successes, published.whole.successes) >= strict.whole.successes
    assert len({one.whole.n for one in (strict, osworld, published, *trivial)}) == 1
    assert all(one.feasible.successes == 0 for one in trivial)
