"""The same task before and after: which are chosen, and where they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.report.episodes import learned
from actors.cluster.runs import evaluation_rounds
from runtime.segments import SegmentStore
from tests.actors.cluster.test_report_page import Fabricated


def test_a_task_that_was_missed_first_and_solved_last_is_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Fabricated(tmp_path / "one")
    made.learn()
    made.play(1, "after_bc", "0.2", [True, False, False])
    made.play(2, "final", "0.8", [True, True, False])
    segments = SegmentStore(made.path / "segments", "first-round")
    for token in range(100, 103):
        made._step(segments, token)
    segments.close()
    run = made.done()
    first, *_, last = evaluation_rounds.read_rounds(run)
    pairs = learned(run)
    assert pairs
    for before, after in pairs:
        assert (before.where, after.where) == (first.name, last.name)
        assert before.task == after.task
        assert not before.success
        assert after.success
    assert len({pair.after.family for pair in pairs}) == len(pairs)
    assert cli.main(["report", "one", "--runs", str(run.parent), "--out", str(tmp_path / "out")]) == 0
    assert f"{pairs[0].after.task} before and after" in capsys.readouterr().out
    assert pairs[0].after.task in (tmp_path / "out" / "report.html").read_text().split("Rounds of")[0]
