"""An experiment is what it was when it began: another of its name takes nothing from it, and an edited file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import runtime.system
from actors.cluster import cli
from actors.cluster.config import typed_yaml
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import experiment, run_folder
from actors.cluster.runs.run_folder import RunRecord
from actors.replay.database.schema import connect
from runtime.errors import ConfigError
from tests.actors.cluster.unplayed import AT, FILE, Broken, refused, told, unplayed


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return unplayed(tmp_path, monkeypatch)


@pytest.mark.slow
def test_another_experiment_takes_nothing_from_one_of_its_name(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would begin from the other's recording and from what that has cloned."""
    begin = ["run", "my arms.yaml", "--name", "e", *AT]
    assert cli.main([*begin, "--seed", "3", "--arm", "near"]) == 130
    line = told(capsys)
    while cli.main(line) == 130:
        pass
    capsys.readouterr()
    shown = refused(capsys, "run", "my file.yaml", "--name", "e", *AT, "--seed", "5")
    assert "--name e: experiment e is of my arms.yaml; give another --name" in shown
    shown = refused(capsys, *begin, "--seed", "3", "--arm", "far", "--set", "learner.sft.lr=0.5")
    assert "--name e: experiment e was begun with no --set; give another --name" in shown
    shown = refused(capsys, *begin, "--seed", "5", "--arm", "far", "--cloned", "e-cloning-3")
    assert "--name e: experiment e was begun with cloning of its own; give another --name" in shown
    text = Path("my arms.yaml").read_text()
    Path("my arms.yaml").write_text(text.replace("count: 1", "count: 2"))
    assert "it has changed since e-" in refused(capsys, *begin, "--seed", "3", "--arm", "far")
    Path("my arms.yaml").write_text(text)
    assert cli.main([*begin, "--seed", "3", "--arm", "far"]) == 130
    assert broken.begun[-1] == "e-far-3", "the same, for another arm"


def test_a_run_that_only_has_the_name_of_a_recording_is_none(
    broken: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "my file.yaml", "--name", "e-demos", *AT]) == 130
    begin = ["run", "my arms.yaml", "--name", "e", *AT]
    for words in (begin, [*begin, "--dry-run"]):
        shown = refused(capsys, *words)
        assert "--name e: there is a run e-demos that is none of experiment e's; give another --name" in shown
    assert broken.begun == ["e-demos"]
    assert cli.main([*begin, "--set", "demos.source=e-demos"]) == 130, "taken where it is asked for"
    assert broken.begun == ["e-demos", "e-cloning-3"]


def test_a_report_that_can_not_be_drawn_changes_no_exit_status(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def undrawn(*_: object, **__: object) -> int:
        raise ConfigError("drawing needs matplotlib")

    monkeypatch.setattr("actors.cluster.report.show.show", undrawn)
    begin = ["run", "my file.yaml", "--seed", "3", "--name", "e", *AT]
    assert [cli.main(begin), cli.main([*begin, "--resume"]), cli.main([*begin, "--resume"])] == [130, 130, 0]
    connect(Path("my runs/e-3/ledger.sqlite"))[0].close()
    assert cli.main([*begin, "--resume"]) == 0
    assert "no report: drawing needs matplotlib" in capsys.readouterr().out


def test_a_file_edited_while_its_runs_are_played_changes_none_of_them(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path("my arms.yaml")
    text = file.read_text()

    def edited(record: RunRecord) -> tuple[str, str | None]:
        file.write_text("half sav" if record.arm == "near" else text)
        record.resumed = 1
        return broken(record)

    monkeypatch.setattr(runtime.system, "run", edited)
    monkeypatch.setattr(run_folder, "of_experiment", lambda *_: [])
    monkeypatch.setattr("actors.cluster.report.show.show", lambda *_, **__: 0)
    assert cli.main(["run", str(file), "--seed", "5", "--name", "e", *AT]) == 0
    assert broken.begun == ["e-demos", "e-cloning-5", "e-near-5", "e-far-5"]
    for name, arm in (("e-near-5", "near"), ("e-far-5", "far")):
        assert run_folder.read_record(Path("my runs") / name).settings == experiment.settings_of(str(file), arm)


def test_a_run_says_that_its_file_has_changed(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", "--name", "e", *AT]
    assert cli.main(begin) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert "has changed since" not in "".join(capsys.readouterr())
    Path("my file.yaml").write_text(FILE + "entropulse: {total_rl_steps: 7}\n")
    assert cli.main([*begin, "--resume"]) == 0
    said = capsys.readouterr().err
    assert said.count("my file.yaml has changed since: run e goes on as it was begun (--set") == 1
    assert typed_yaml.read(Path("my runs/e/deploy.yaml"), Deploy).entropulse.total_rl_steps != 7
