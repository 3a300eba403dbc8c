"""The axis on which long pulses take less room than RL."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.report import curves
from actors.cluster.report.axis import SHARE, knots
from actors.cluster.report.drawing import Drawing

STAYS = st.lists(st.tuples(st.sampled_from(["bc", "rl", "pulse"]), st.integers(1, 900)), min_size=1, max_size=8)


def laid(stays: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """One after the other."""
    found, at = [], 0
    for phase, length in stays:
        found.append((phase, at, at + length))
        at += length
    return found


def test_long_pulses_take_a_part_of_rls_width() -> None:
    bends = dict(knots(laid([("bc", 600), ("rl", 40), ("pulse", 300), ("rl", 60), ("pulse", 300)])))
    assert bends[640] - bends[600] == 40, "RL keeps its width"
    assert abs(bends[940] - bends[640] - SHARE * 100) < 1e-9
    assert bends[1000] - bends[940] == 60


def test_short_pulses_leave_the_axis_alone() -> None:
    assert knots(laid([("bc", 600), ("rl", 80), ("pulse", 40), ("rl", 40)])) == []
    assert knots(laid([("bc", 600)])) == []


@given(STAYS)
def test_the_axis_increases_strictly(stays: list[tuple[str, int]]) -> None:
    for (step, place), (later, further) in pairwise(knots(laid(stays))):
        assert later > step
        assert further > place


@pytest.mark.slow
def test_the_names_of_phases_never_lie_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[Any] = []

    def look(figure: Any, **_: Any) -> Drawing:
        names.extend((one.get_text(), one.get_window_extent()) for one in figure.axes[0].texts)
        curves.pyplot().close(figure)
        return Drawing(b"", "")

    monkeypatch.setattr(curves, "drawn", look)
    stays, at = [curves.Stretch("bc", 0, 900)], 900
    for _ in range(4):
        stays += [
            curves.Stretch("rl", at, at + 18),
            curves.Stretch("pulse", at + 18, at + 218),
        ]
        at += 218
    stays.append(curves.Stretch("rl", at, at + 2))
    dots = curves.Dots("T=1", [900, at + 2], [0.4, 0.6], [0.3, 0.5], [0.5, 0.7], [[], []])
    curves.success({}, [dots], stays)
    assert [name for name, _ in names].count("rl") == 4
    assert names[-1][0] == "pulse", "two batches have no room for a name"
    for (_, one), (_, other) in pairwise(names):
        assert one.x1 <= other.x0
