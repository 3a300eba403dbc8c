"""What is drawn: bands of seeds, axes, labels, and no picture of a single point."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config.schema import Deploy
from actors.cluster.report import drawing, show
from actors.cluster.report.drawing import Picture, counts, lines, success
from actors.cluster.report.figures import FIGURES, GROUPS, Band, Dots, band, smooth
from actors.cluster.report.pooled import Group
from actors.cluster.report.run_data import Stretch, key_of, read_run
from tests.actors.cluster.fabricated import Fabricated

CURVE = st.dictionaries(st.integers(0, 12), st.floats(-1e6, 1e6), max_size=10)
AXIS = drawing._Axis([], "step", "seeds")
LOSS = FIGURES[0]


@given(st.lists(CURVE, max_size=4))
def test_a_band_holds_its_mean_and_every_seed_in_any_order(curves: list[dict[int, float]]) -> None:
    made, other = band(curves), band(curves[::-1])
    full = [curve for curve in curves if curve]
    assert made.seeds == len(full)
    assert made.steps == (sorted(set.intersection(*map(set, full))) if full else [])
    for number, step in enumerate(made.steps):
        values = [curve[step] for curve in full]
        assert made.low[number] == min(values) <= made.mean[number] <= max(values) == made.high[number]
        assert made.mean[number] == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert (made.steps, made.low, made.high) == (other.steps, other.low, other.high)


@given(st.lists(st.floats(-100, 100), max_size=20), st.integers(1, 6))
def test_smoothing_keeps_length_and_range(values: list[float], window: int) -> None:
    smoothed = smooth(values, window)
    assert len(smoothed) == len(values)
    for number, value in enumerate(smoothed):
        seen = values[max(0, number + 1 - window) : number + 1]
        assert value == pytest.approx(sum(seen) / len(seen))


def test_what_a_file_asks_for_and_keys_that_came_later_do_not_part_runs() -> None:
    older = {"run": {"seed": 1, "require": {"gain": 0.01}}, "learner": {"sft": {"lr": 0.5}}}
    newer = msgspec.to_builtins(Deploy())
    newer["run"] |= {"require": {"gain_above": 0.0}}
    newer["learner"]["sft"]["lr"] = 0.5
    newer["demos"]["source"] = "elsewhere"
    assert key_of(older) == key_of(newer)
    assert older["run"]["seed"] == 1, "it is left as it was"
    newer["learner"]["rl"]["negative_scale"] = 0.5
    assert key_of(older) != key_of(newer)


def test_a_run_of_one_step_is_shown_in_tables_alone(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.learn(steps=1)
    path = run.done()
    made = [picture.name for picture in drawing.pictures([Group("one", [read_run(path)])])]
    assert made == ["staleness"], "two bars"
    written = show.write([read_run(path)], [path], tmp_path / "out")
    assert [file.name for file in written] == ["report.html", "one.figures.gz"]
    assert "One optimizer step was made: a curve takes two." in written[0].read_text()


def of(values: list[float], first: int = 0) -> Band:
    return Band(list(range(first, first + len(values))), values, values, values, 1)


def test_one_point_one_round_and_one_bar_are_no_picture() -> None:
    assert lines(LOSS, {"a": of([0.5]), "b": of([])}, AXIS) is None
    assert success({"a": of([0.5])}, [Dots("T=1", [3], [0.5], [0.4], [0.6], [[]])], AXIS) is None
    assert counts(GROUPS, {"a": {"too old": 1.0}}, "") is None
    assert lines(LOSS, {"a": of([0.5, 0.6])}, AXIS) is not None


def test_the_names_of_phases_never_lie_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[Any] = []

    def look(plot: Any, *words: str, **_: Any) -> Picture:
        names.extend((one.get_text(), one.get_window_extent()) for one in plot.axes[0].texts)
        drawing.pyplot().close(plot)
        return Picture(*words, drawing.Markup(""))

    monkeypatch.setattr(drawing, "drawn", look)
    stretches, at = [Stretch("bc", 0, 900)], 900
    for _ in range(4):
        stretches += [Stretch("rl", at, at + 90), Stretch("pulse", at + 90, at + 290)]
        at += 290
    stretches.append(Stretch("rl", at, at + 2))
    dots = Dots("T=1", [900, at + 2], [0.4, 0.6], [0.3, 0.5], [0.5, 0.7], [[], []])
    success({}, [dots], drawing._Axis(stretches, "step", "seeds"))
    assert [name for name, _ in names].count("rl") == 4
    assert names[-1][0] == "pulse", "two batches have no room for a name"
    for (_, one), (_, other) in pairwise(names):
        assert one.x1 <= other.x0
