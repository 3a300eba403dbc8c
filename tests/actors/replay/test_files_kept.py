"""Recordings and figures that are kept with the program still load, whatever is renamed in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster.report import run_data
from actors.replay.demos import demo_files
from apis.observation import OBSERVATION_VERSION

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.mark.parametrize(("name", "version"), [("local", OBSERVATION_VERSION), ("bc-alone", 1)])
def test_a_recording_loads_and_says_which_observation_it_shows(name: str, version: int) -> None:
    header, found = demo_files.read(DEPLOY / "demos" / f"{name}.parquet")
    assert header.demos > 0
    assert header.observations == (version,)
    demo = next(iter(found))
    assert demo.steps
    assert demo_files.unfit(demo) == ""


def test_figures_load() -> None:
    run = run_data.read_file(min((DEPLOY / "results").rglob(f"*{run_data.SUFFIX}")))
    assert run.steps[-1].step > 0
    assert run.rounds
