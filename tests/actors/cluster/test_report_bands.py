"""Means and bands of several seeds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config.schema import Deploy
from actors.cluster.report.bands import band, key, smooth

CURVE = st.dictionaries(st.integers(0, 12), st.floats(-1e6, 1e6), max_size=10)


@given(st.lists(CURVE, max_size=4))
def test_a_band_holds_its_mean_and_every_seed(curves: list[dict[int, float]]) -> None:
    found = band(curves)
    told = [curve for curve in curves if curve]
    assert found.seeds == len(told)
    assert found.steps == sorted(found.steps)
    for number, step in enumerate(found.steps):
        values = [curve[step] for curve in told]
        assert found.low[number] == min(values) <= found.mean[number] <= max(values) == found.high[number]
        assert found.mean[number] == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert set(found.steps) == (set.intersection(*(set(curve) for curve in told)) if told else set())


@given(st.lists(CURVE, min_size=1, max_size=4))
def test_the_order_of_seeds_says_nothing(curves: list[dict[int, float]]) -> None:
    shuffled = list(reversed(curves))
    one, two = band(curves), band(shuffled)
    assert (one.steps, one.low, one.high) == (two.steps, two.low, two.high)
    assert one.mean == pytest.approx(two.mean, abs=1e-6)


@given(CURVE)
def test_one_seed_is_its_own_band(curve: dict[int, float]) -> None:
    found = band([curve])
    assert found.mean == found.low == found.high == [curve[step] for step in sorted(curve)]


@given(st.lists(st.floats(-100, 100), max_size=20), st.integers(1, 6))
def test_smoothing_keeps_length_and_range(values: list[float], window: int) -> None:
    found = smooth(values, window)
    assert len(found) == len(values)
    for number, value in enumerate(found):
        seen = values[max(0, number + 1 - window) : number + 1]
        assert value == pytest.approx(sum(seen) / len(seen))


def test_what_a_file_asks_for_and_keys_that_came_later_do_not_part_runs() -> None:
    older = {"run": {"seed": 1, "require": {"gain": 0.01}}, "learner": {"sft": {"lr": 0.5}}}
    newer = msgspec.to_builtins(Deploy())
    newer["run"] |= {"require": {"gain_above": 0.0}}
    newer["learner"]["sft"]["lr"] = 0.5
    assert key(older) == key(newer)
    newer["learner"]["rl"]["negative_scale"] = 0.5
    assert key(older) != key(newer)


def test_only_seed_and_recording_are_left_out_of_what_runs_share() -> None:
    deploy = {"run": {"seed": 1}, "model": {"path": ""}, "demos": {"source": "a", "count": 4}}
    assert key(deploy) == key({"demos": {"count": 4, "source": "b"}, "model": {"path": ""}, "run": {"seed": 2}})
    assert key(deploy) != key({"run": {"seed": 1}, "demos": {"source": "a", "count": 5}})
    assert deploy["run"]["seed"] == 1
