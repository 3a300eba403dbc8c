"""What the report calls runs: seeds where each has its own, and one name for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.cluster.report import curves, figures_file, show
from actors.cluster.report.drawing import Drawing
from tests.actors.cluster.test_report_page import jpeg, reported, whole


def test_runs_of_one_seed_are_not_called_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    legends: list[str] = []
    monkeypatch.setattr(curves, "drawn", lambda figure, **_: _legend(figure, legends))
    paths = [whole(tmp_path / place / "local-0", shift=shift) for shift, place in enumerate(("here", "there"))]
    show.show(paths, None, as_json=False)
    said = capsys.readouterr().out
    assert "local: 2 runs (local-0, local-0)" in said
    assert "after_bc to final, 2 runs: mean" in said
    assert " RUNS " in said
    page = reported(paths, tmp_path / "out")
    assert "<td>2 runs: +0.500, +0.500</td>" in page
    assert "local, 2 runs" in legends
    assert any("over 2 runs" in one for one in legends)
    for words in (said, " ".join(legends)):
        assert "seeds" not in words.lower()


def _legend(figure: Any, said: list[str]) -> Drawing:
    """Its words instead of the picture."""
    for axes in figure.axes:
        said += [one.get_text() for one in (axes.get_legend().get_texts() if axes.get_legend() else ())]
    curves.pyplot().close(figure)
    return Drawing(jpeg(), '<svg viewBox="0 0 1 1"></svg>')


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_runs_of_one_name_leave_a_file_each(tmp_path: Path) -> None:
    paths = [whole(tmp_path / place / "local-0", seed=seed) for seed, place in enumerate(("here", "there"))]
    page = reported(paths, tmp_path / "out")
    kept_ = [figures_file.read(tmp_path / "out" / f"{name}{figures_file.SUFFIX}") for name in ("local-0", "local-0-2")]
    assert [(run.name, run.figures.run, run.seed) for run in kept_] == [
        ("local-0", "local-0", 0), ("local-0-2", "local-0-2", 1),
    ]  # fmt: skip
    assert "Rounds of local-0-2" in page
