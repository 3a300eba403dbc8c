"""`run --resume --dry-run` says whether the checkpoint that it would load can be loaded; a run's files are private."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.runs import ledgers, run_folder
from actors.replay.database.ledger_file import connect
from policy import checkpoints


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped after it had saved checkpoints 0.2 and 0.4."""
    folder = tmp_path / "runs" / "r"
    record = run_folder.RunRecord(name="r", file="local", seed=0, build="", versions={}, started="", started_s=1.0)
    before = os.umask(0o022)
    try:
        claimed = run_folder.claim(folder, record, resume=False)
        (folder / "deploy.yaml").write_text(deploy_files.dump(deploy_files.load("local", [])[0]))
        (folder / "logs").mkdir()
        claimed.end("stopped", "interrupted")
        (tmp_path / "after").touch()
    finally:
        os.umask(before)
    database = connect(folder / "ledger.sqlite")[0]
    for version in ("0.2", "0.4"):
        place = folder / "checkpoints" / version
        (place / "shards").mkdir(parents=True)
        (place / "shards" / "a").write_text(version)
        info = checkpoints.CheckpointInfo(
            version=version, has_reference=False, dtype="float32", files=checkpoints.digests(place)
        )
        (place / checkpoints.MARKER).write_bytes(msgspec.json.encode(info))
        with database:
            database.execute("INSERT INTO meta VALUES (?, ?)", (f"digest:{version}", checkpoints.digest(place)))
    with database:
        database.execute("INSERT INTO meta VALUES ('trained', '0.5') ON CONFLICT DO UPDATE SET value = '0.5'")
    database.close()
    return folder


def dry(run: Path, *more: str) -> int:
    return cli.main(["run", "local", "--resume", "--dry-run", "--name", "r", "--runs", str(run.parent), *more])


def test_the_checkpoint_that_would_be_loaded_is_checked_and_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry(run) == 0
    assert "checkpoint    0.4 can be loaded: its files are those that the run saved (r)" in capsys.readouterr().out
    assert dry(run, "--json") == 0
    assert json.loads(capsys.readouterr().out)["checkpoints"]["r"].startswith("0.4 can be loaded")


def test_one_that_was_changed_is_refused_by_its_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "0.4" / "shards" / "a").write_text("other")
    assert dry(run) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "0.4: shards/a differs: its files are not those that the run saved" in said.err
    assert said.err.count("\n") == 1


def test_one_that_is_gone_leaves_the_one_before(run: Path) -> None:
    (run / "checkpoints" / "0.4" / checkpoints.MARKER).unlink()
    assert ledgers.checkpoint(run).startswith("0.2 can be loaded")


@pytest.mark.parametrize(
    ("lost", "said"),
    [("ledger.sqlite", "its ledger.sqlite is gone"), ("checkpoints", "the checkpoints that it saved in")],
)
def test_a_run_whose_ledger_or_checkpoints_are_gone_begins_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], lost: str, said: str
) -> None:
    for path in run.glob(f"{lost}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = sorted(run.rglob("*"))
    for words in ([], ["--dry-run"]):
        assert cli.main(["run", "local", "--resume", "--name", "r", "--runs", str(run.parent), *words]) == 2
        heard = capsys.readouterr()
        assert heard.out == ""
        assert re.fullmatch(rf"computerrl run: run r can't go on: {said}.*: put \w+ back\n", heard.err)
    assert sorted(path for path in run.rglob("*") if "sqlite-" not in path.name) == [
        path for path in before if "sqlite-" not in path.name
    ]


def test_all_files_of_a_run_are_its_owners_alone(run: Path, tmp_path: Path) -> None:
    for path in (run, run / "logs"):
        assert path.stat().st_mode & 0o777 == 0o700
    for name in ("deploy.yaml", "run.json", "lock"):
        assert (run / name).stat().st_mode & 0o777 == 0o600, name
    assert (tmp_path / "after").stat().st_mode & 0o777 == 0o644, "what is written when it has ended is as it was"
    assert run.parent.stat().st_mode & 0o777 == 0o755
