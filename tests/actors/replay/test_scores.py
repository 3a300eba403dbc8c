"""Scores side by side: a time-out at an infeasible task counts as published only, and trivial policies stand beside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.replay.statistics.scores import TIMED_OUT, side_by_side
from actors.replay.statistics.success_rates import RoundEpisode

EPISODES = [
    RoundEpisode(task="s/a", success=True, reason="verified"),
    RoundEpisode(task="s/b", reason=TIMED_OUT),
    RoundEpisode(task="s/c", feasible=False, reason=TIMED_OUT),
    RoundEpisode(task="s/d", success=True, feasible=False, reason="verified"),
    RoundEpisode(task="s/e", fault=True),
]


def test_scores_differ_where_nothing_was_ended() -> None:
    found = {one.name: (one.whole.successes, one.whole.n, one.feasible.successes, one.infeasible.successes)
             for one in side_by_side(EPISODES)}  # fmt: skip
    assert found == {
        "strict": (2, 4, 1, 1),
        "published, at least": (3, 4, 1, 2),
        "never ending, published": (2, 4, 0, 2),
        "giving up at once": (2, 4, 0, 2),
    }


@given(st.lists(st.sampled_from(EPISODES), max_size=12))
def test_published_is_never_below_strict_and_denominators_agree(episodes: list[RoundEpisode]) -> None:
    strict, published, *trivial = side_by_side(episodes)
    assert published.whole.successes >= strict.whole.successes
    assert len({one.whole.n for one in (strict, published, *trivial)}) == 1
    assert all(one.feasible.successes == 0 for one in trivial)
