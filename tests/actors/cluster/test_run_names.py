"""A run is named in the same way to all commands."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from actors.cluster.evaluate import settings
from actors.cluster.runs import recordings, run_folder, weights
from actors.cluster.runs.weights import NamedWeights
from actors.replay.database.ledger_file import LEDGER
from runtime.errors import ConfigError
from tests.actors.cluster.test_runfolder import record


def made(folder: Path, started_s: float) -> Path:
    """A run that has ended, with a ledger and with weights of its fifth step."""
    run_folder.claim(folder, record(folder.name, started_s), resume=False).end("ok", None)
    (folder / LEDGER).touch()
    (folder / "weights" / "0.5").mkdir(parents=True)
    (folder / "weights" / "0.5" / "config.json").touch()
    return folder


def like(name: str, runs: Path) -> Path | None:
    """The run that `eval --like NAME` takes its settings from, None where it is refused."""
    seen: list[Path] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings.deploy_files, "stored", seen.append)
        try:
            settings._like(Namespace(like=name, runs=str(runs)), NamedWeights(folder="", name=""))
        except ConfigError:
            return None
    return seen[0]


def test_all_commands_find_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    first, last, away = made(runs / "a", 2.0), made(runs / "b", 3.0), made(elsewhere / "a", 1.0)
    monkeypatch.chdir(elsewhere)  # where a path `a` is another run
    for name, meant in (("a", first), ("last", last), (str(away), away), ("../elsewhere/a", away), ("b", last)):
        found = (
            run_folder.find(runs, name),
            weights.run_of(name, runs),
            recordings.locate(name, runs),
            like(name, runs),
        )
        assert {path and path.resolve() for path in found} == {meant.resolve()}, name
    assert run_folder.look_up(runs, "c") is None
    assert like("c", runs) is None
    assert weights.run_of("c", runs) is None


def test_last_is_the_newest_run_that_a_command_can_use(tmp_path: Path) -> None:
    first, last = made(tmp_path / "a", 1.0), made(tmp_path / "b", 2.0)
    (last / LEDGER).unlink()
    (last / "weights" / "0.5" / "config.json").unlink()
    assert run_folder.find(tmp_path, "last") == last
    assert weights.run_of("last", tmp_path) == recordings.locate("last", tmp_path) == first.resolve()


def test_no_run_is_last_where_none_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no runs in .* yet: make one with"):
        run_folder.find(tmp_path, "last")
    with pytest.raises(ConfigError, match="no training run in"):
        weights.run_of("last", tmp_path)
    with pytest.raises(ConfigError, match="no recording of that name"):
        recordings.locate("last", tmp_path)
