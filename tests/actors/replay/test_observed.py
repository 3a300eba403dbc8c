"""Recordings and runs say which observation they were made with, also where several builds made them."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_demos import Recorder, export

from actors.replay.database import queries
from actors.replay.database.ledger_file import reading
from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import KEY
from actors.replay.ledger import demo_tasks
from apis.observation import OBSERVATION_VERSION
from runtime.errors import StoreError


def shown(path: Path) -> tuple[int, ...]:
    return demo_files.read(path)[0].observations


def played(run: Recorder) -> tuple[int, ...]:
    with reading(run.folder) as database:
        return queries.observations_of_episodes(database)


def recorded(folder: Path, version: int, monkeypatch: pytest.MonkeyPatch, successes: int) -> Recorder:
    monkeypatch.setattr(demo_tasks, "OBSERVATION_VERSION", version)
    run = Recorder(folder, 99)
    run.record(successes)
    return run


def test_a_recording_says_which_observation_it_shows_wherever_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (recorded(tmp_path / f"v{version}", version, monkeypatch, version) for version in (5, 7))
    files = {run: tmp_path / f"{run.folder.name}.parquet" for run in (old, new)}
    for run, file in files.items():
        export(run, file)
    assert [shown(file) for file in files.values()] == [(5,), (7,)]
    other = Recorder(tmp_path / "other", 99)
    assert (played(other), shown(other.folder)) == ((7,), (7,))
    other.take_in(files[old])
    assert shown(other.folder) == (5,), "nothing of its own desktops is in it"
    other.take_in(files[new])
    assert (played(other), shown(other.folder)) == ((7,), (5, 7))


def test_a_run_that_another_build_goes_on_with_shows_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path / "run", 5, monkeypatch, 2)
    monkeypatch.setattr(demo_tasks, "OBSERVATION_VERSION", 7)
    run.play.do(demo_tasks.label)
    run.record(1)
    assert played(run) == shown(run.folder) == (5, 7)


@pytest.mark.parametrize(("name", "version"), [("local", OBSERVATION_VERSION), ("bc-alone", 1)])
def test_the_recordings_that_come_along_say_what_they_show(name: str, version: int) -> None:
    assert shown(Path(str(resources.files("deploy"))) / "demos" / f"{name}.parquet") == (version,)


@pytest.mark.parametrize("bad", [[], [0], ["2"], 2, list(range(1, 99))])
def test_versions_that_are_none_are_refused(bad: object, tmp_path: Path) -> None:
    plain = {"format": demo_format.FORMAT, "tokenizer": "", "form": "", "demos": 0, "observations": bad}
    pq.write_table(pa.table({}).replace_schema_metadata({KEY: json.dumps(plain)}), tmp_path / "demos.parquet")
    with pytest.raises(StoreError, match="observations"):
        demo_files.read(tmp_path / "demos.parquet")
