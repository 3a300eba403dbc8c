"""One command is one list of requests: a run of its own is a list of one, and an experiment's runs stand last."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.runs import requests, run_folder
from actors.cluster.runs.requests import RunRequest
from tests.actors.cluster.unplayed import AT, Broken, refused, told, unplayed


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return unplayed(tmp_path, monkeypatch)


def asked(*words: str) -> list[RunRequest]:
    return requests.resolve(cli.build_parser().parse_args(["run", *words, *AT]))


def test_a_run_of_its_own_is_a_list_of_one(broken: Broken) -> None:
    (one,) = asked("my file.yaml", "--name", "one", "--set", "run.seed=4")
    assert (one.folder, one.deploy.run.seed, one.experiment, one.arm) == (Path("my runs/one"), 4, "", "")
    assert (one.is_own, one.resume, one.recording, one.cloning, one.begins()) == (True, False, None, None, one.deploy)
    assert cli.main(["run", "my file.yaml", "--name", "one", *AT]) == 130
    (again,) = asked("my file.yaml", "--resume")
    assert (again.folder, again.resume, again.changed) == (one.folder, True, False)
    assert asked("my file.yaml", "--resume", "--set", "run.limit_s=9")[0].changed


def test_an_experiment_is_its_runs_behind_what_they_begin_from(broken: Broken) -> None:
    found = asked("my arms.yaml", "--name", "e")
    assert [one.folder.name for one in found] == [
        "e-demos", "e-cloning-3", "e-near-3", "e-far-3", "e-cloning-5", "e-near-5", "e-far-5"
    ]  # fmt: skip
    assert not Path("my runs").exists(), "resolving writes nothing"
    recording, cloning, near = found[:3]
    assert [one.is_own for one in found[:3]] == [False, False, True]
    assert (cloning.recording, near.recording, near.cloning) == (recording.folder, recording.folder, cloning.folder)
    assert (recording.deploy.tasks.train, cloning.deploy.entropulse.total_rl_steps) == ([], 0)
    assert [one.folder.name for one in asked("my file.yaml", "--name", "f", "--seed", "1")] == ["f-demos", "f-1"]


def test_what_an_experiment_goes_on_with_is_its_own(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "my arms.yaml", "--seed", "3", "--name", "e", *AT]) == 130
    line = told(capsys)
    assert [one.resume for one in asked("my arms.yaml", "--resume")] == [True, False, False, False]
    assert cli.main(["run", "my file.yaml", "--name", "e-far-5", *AT]) == 130
    shown = refused(capsys, *line, "--seed", "5")
    assert "--name e: there is a run e-far-5 that is none of experiment e's; give another --name" in shown


def test_a_dry_run_refuses_what_another_process_holds(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    for words, held in ((["my file.yaml"], "e"), (["my arms.yaml"], "f-demos")):
        assert cli.main(["run", *words, "--name", held[0], *AT]) == 130
        with run_folder.held(Path("my runs") / held, "now"):
            assert f"run {held} is in use by" in refused(capsys, "run", *words, "--resume", "--dry-run", *AT)
