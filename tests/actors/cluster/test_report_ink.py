"""A report draws no picture of a single point."""

from __future__ import annotations

from pathlib import Path

from actors.cluster.report import show
from actors.cluster.report.curves import Dots, counts, lines, success
from actors.cluster.report.gather import Group, gather
from actors.cluster.report.pictures import pictures
from tests.actors.cluster.test_report_page import Fabricated


def test_a_run_of_one_step_is_told_in_tables_alone(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.learn(steps=1)
    path = run.done()
    assert not [one.name for one in pictures([Group("one", [gather(path)])]) if one.name != "staleness"], "two bars"
    written = show.write([gather(path)], [path], tmp_path / "out")
    assert [file.name for file in written] == ["report.html", "one.figures.gz"]
    assert "One optimizer step was made: a curve takes two." in written[0].read_text()


def test_one_point_one_round_and_one_bar_are_no_picture() -> None:
    assert lines({"a": [{3: 0.5}], "b": [{}]}, [], "nats") is None
    assert success({"a": [{3: 0.5}]}, [Dots("T=1", [3], [0.5], [0.4], [0.6], [[]])], []) is None
    assert counts({"a": {"too old": 1.0}}, "", "") is None
    assert lines({"a": [{3: 0.5, 4: 0.6}]}, [], "nats") is not None
