"""Recordings and figures that are kept with the program still load: their fields have the names of when they were made.

Invariant: whatever is renamed in the code, a file that exists is read as before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster.report import run_data
from actors.replay.demos import demo_files

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RECORDINGS = sorted((DEPLOY / "demos").glob("*.parquet"))
FIGURES = sorted((DEPLOY / "results").rglob(f"*{run_data.SUFFIX}"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_a_recording_loads(path: Path) -> None:
    header, found = demo_files.read(path)
    assert header.demos > 0
    demo = next(iter(found))
    assert demo.steps
    assert demo_files.unfit(demo) == ""


def test_recordings_and_figures_are_there() -> None:
    assert RECORDINGS
    assert FIGURES


def test_figures_load() -> None:
    run = run_data.read_file(FIGURES[0])
    assert run.steps[-1].step > 0
    assert run.rounds
