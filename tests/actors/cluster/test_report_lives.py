"""A run's reports count the time in which it went on, and no other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.logs.reader import BEGINS, in_a_row

LIFE = st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6).map(sorted)


def line(event: str, t: float, **more: Any) -> dict[str, Any]:
    return {"event": event, "t": t, "actor": "host/main", **more}


def test_a_night_between_two_lives_is_cut_out() -> None:
    first = [line(BEGINS, 100.0), line("seat_time", 130.0, t0=105.0, t1=129.0)]
    later = [line(BEGINS, 9000.0), line("learner_step", 9010.0, t0=9002.0, t1=9010.0)]
    assert list(in_a_row(first + later)) == [
        *first, line(BEGINS, 130.0), line("learner_step", 140.0, t0=132.0, t1=140.0),
    ]  # fmt: skip
    given_back = [line("episode_released", 9000.0, actor="replay"), *later]
    assert list(in_a_row(first + given_back))[3:] == list(in_a_row(first + later))[2:]
    rebooted = [line(BEGINS, 3.0), line("learner_step", 13.0, t0=5.0, t1=13.0)]
    assert list(in_a_row(first + rebooted))[2:] == list(in_a_row(first + later))[2:]


@given(st.lists(st.tuples(st.floats(0.0, 1e6), LIFE), min_size=1, max_size=4))
def test_distances_within_a_life_stay_and_lives_follow_each_other(lives: list[tuple[float, list[float]]]) -> None:
    lines = [line(BEGINS if not n else "x", start + t) for start, times in lives for n, t in enumerate(times)]
    found = iter(in_a_row(lines))
    end = lines[0]["t"]
    for start, times in lives:
        moved = [next(found)["t"] for _ in times]
        assert abs(moved[0] - end) < 1e-6
        assert all(abs((moved[n] - moved[0]) - (t - times[0])) < 1e-6 for n, t in enumerate(times)), start
        end = moved[-1]
