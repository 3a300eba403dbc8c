"""A run's folder: who owns it, how it is named, what a resume begins from, and a disk that is full."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, models
from actors.cluster.evaluate import settings
from actors.cluster.runs import execute, ledgers, recordings, requests, run_folder, weights
from actors.replay.database.ledger_file import LEDGER, connect
from policy import checkpoints
from runtime.errors import ConfigError
from runtime.program import program
from tests.actors.cluster.fabricated import record
from tests.heard import until
from tests.small_disk import fill, needs_root, small_disk


def test_a_folder_has_one_owner_and_is_continued_on_request_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    run = run_folder.claim(path, record("a", 5.0), resume=False)
    assert run_folder.state(path, run_folder.read_record(path)) == "running"
    with pytest.raises(ConfigError, match="run a is in use by process"):
        run_folder.claim(path, record("a"), resume=True)
    run.end("stopped", "interrupted")
    assert run_folder.state(path, run_folder.read_record(path)) == "stopped"
    with pytest.raises(ConfigError, match="exists already"):
        run_folder.claim(path, record("a"), resume=False)
    again = run_folder.claim(path, record("a", 9.0), resume=True)
    assert (again.record.resumed, again.record.started_s, again.record.verdict) == (1, 5.0, None)
    again.end("ok", None)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_lock_or_a_record_that_is_no_file_is_one_line(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "a"
    run_folder.claim(path, record("a"), resume=False).end("stopped", None)
    (path / "lock").unlink()
    make(path / "lock")
    assert run_folder.state(path, run_folder.read_record(path)) == "stopped"
    with pytest.raises(ConfigError, match=r"^run a can't be kept in \S+: its lock: "):
        run_folder.claim(path, record("a"), resume=True)
    (path / "run.json").unlink()
    make(path / "run.json")
    with pytest.raises(ConfigError, match=r"is no run folder: its run\.json: "):
        run_folder.read_record(path)


def test_a_run_is_continued_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.yaml").touch()
    begun = msgspec.structs.replace(record("a"), file="my.yaml", path=str(tmp_path / "my.yaml"))
    monkeypatch.chdir(tmp_path)
    assert run_folder.to_continue(begun, tmp_path / "runs" / "a") == f"{program()} run my.yaml --resume --name a"
    monkeypatch.chdir("/")
    line = f"{program()} run {tmp_path}/my.yaml --resume --name a --runs {str(tmp_path)[1:]}/runs"
    assert run_folder.to_continue(begun, tmp_path / "runs" / "a") == line


def test_a_killed_owner_leaves_a_killed_run(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom actors.cluster.runs import run_folder\n"
        "r = run_folder.RunRecord(name='k', file='f', seed=0, build='', versions={}, started='', started_s=0)\n"
        "run = run_folder.claim(Path(sys.argv[1]), r, resume=False)\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    path = tmp_path / "k"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        held = run_folder.owner(path)
        assert held is not None
        assert held.pid == child.pid
        child.kill()
        child.wait()
    assert run_folder.state(path, run_folder.read_record(path)) == "killed"
    run_folder.claim(path, record("k", time.time()), resume=True).end("ok", None)


def made(folder: Path, started_s: float) -> Path:
    """A run that has ended, with a ledger and with weights of its fifth step."""
    run_folder.claim(folder, record(folder.name, started_s), resume=False).end("ok", None)
    (folder / LEDGER).touch()
    (folder / "weights" / "0.5").mkdir(parents=True)
    (folder / "weights" / "0.5" / "config.json").touch()
    return folder


@contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Within it this process may not look into `folder`, as the user of others' runs."""
    looked = Path.stat

    def refused(path: Path, **options: Any) -> os.stat_result:
        if path.parent == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return looked(path, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "stat", refused)
        patched.setattr(os.path, "isfile", lambda path: Path(path).parent != folder and Path(path).is_file())
        yield


def like(name: str, runs: Path) -> Path | None:
    """The run that `eval --like NAME` takes its settings from, None where it is refused."""
    seen: list[Path] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings.deploy_files, "stored", seen.append)
        try:
            settings._like(Namespace(like=name, runs=str(runs)), run_folder.NamedWeights(folder="", name=""))
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


def test_a_run_of_another_user_is_said_to_be_unreadable_and_hides_no_other(tmp_path: Path) -> None:
    mine, theirs = made(tmp_path / "mine", 1.0), made(tmp_path / "theirs", 2.0)
    with unreadable(theirs):
        for name in ("theirs", str(theirs)):
            with pytest.raises(ConfigError, match=f"^{theirs} can't be read: Permission denied$"):
                run_folder.find(tmp_path, name)
        assert run_folder.broken(tmp_path) == [(theirs, f"{theirs} can't be read: Permission denied")]
        assert run_folder.find(tmp_path, "last") == mine


def test_last_is_the_newest_run_that_a_command_can_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no runs in .* yet: make one with"):
        run_folder.find(tmp_path, "last")
    with pytest.raises(ConfigError, match="no training run in"):
        weights.run_of("last", tmp_path)
    with pytest.raises(ConfigError, match="no recording of that name"):
        recordings.locate("last", tmp_path)
    first, last = made(tmp_path / "a", 1.0), made(tmp_path / "b", 2.0)
    (last / LEDGER).unlink()
    (last / "weights" / "0.5" / "config.json").unlink()
    assert run_folder.find(tmp_path, "last") == last
    made(tmp_path / "c", 3.0)
    played = msgspec.structs.replace(run_folder.read_record(tmp_path / "c"), file="eval base")
    (tmp_path / "c" / "run.json").write_bytes(msgspec.json.encode(played))
    assert run_folder.find(tmp_path, "last") == last, "an evaluation trains nothing"
    assert weights.run_of("last", tmp_path) == recordings.locate("last", tmp_path) == first.resolve()


def test_a_run_is_a_model_to_begin_from_as_it_is_for_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(made(tmp_path / "a", 1.0) / "weights" / "0.5")
    monkeypatch.setattr(models, "locate", Path)
    monkeypatch.setattr(weights.evaluation_rounds, "read_rounds", lambda _: [])
    for name in ("a", "last", str(tmp_path / "a")):
        assert weights.locate(name, tmp_path).folder == folder
        assert requests.pinned(["run.seed=1", f"model.path={name}"], tmp_path) == [
            "run.seed=1",
            f'model.path="{folder}"',
        ]
    for name in ("base", "b", ""):
        assert requests.pinned([f"model.path={name}"], tmp_path) == [f"model.path={name}"]


@needs_root
async def test_a_disk_that_refuses_is_told_once_with_its_folder_and_what_to_do(tmp_path: Path) -> None:
    notes: list[str] = []
    with small_disk(tmp_path / "run", 1) as run:
        task = asyncio.ensure_future(execute.watch_disk(run, notes.append, look_s=0.02))
        await asyncio.sleep(0.1)
        assert notes == []
        ballast = fill(run)
        await until(lambda: notes)
        await asyncio.sleep(0.2)
        assert [f"the disk of {run} takes no more: No space left on device (make room there;" in n for n in notes] == [
            True
        ]
        ballast.unlink()
        await until(lambda: len(notes) == 2)
        assert "the run goes on" in notes[1]
        assert list(run.iterdir()) == []
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@needs_root
def test_the_verdict_of_a_run_is_stored_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        run = run_folder.claim(disk / "r", record("r"), resume=False)
        run.save()
        fill(disk)
        run.end("crashed", "the disk takes no more " * 100)
        assert run_folder.read_record(disk / "r").verdict == "crashed"
        assert not list((disk / "r").glob("*.part"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped after it had saved checkpoints 0.2 and 0.4."""
    folder = tmp_path / "runs" / "r"
    before = os.umask(0o022)
    try:
        claimed = run_folder.claim(folder, record("r"), resume=False)
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
        database.execute("INSERT INTO blobs VALUES ('desktop-0-000000.seg', 24, 1, '00', 1)")
    (folder / "segments").mkdir()
    (folder / "segments" / "desktop-0-000000.seg").touch()
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
    (run / "checkpoints" / "0.4" / "shards" / "a").write_text("other")
    assert dry(run) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "0.4: shards/a differs: its files are not those that the run saved" in said.err
    assert said.err.count("\n") == 1
    (run / "checkpoints" / "0.4" / checkpoints.MARKER).unlink()
    assert ledgers.checkpoint(run).startswith("0.2 can be loaded"), "one that is gone leaves the one before"


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("ledger.sqlite", "its ledger.sqlite is gone"),
        ("checkpoints", "the checkpoints that it saved in"),
        ("segments", "the steps that it stored in"),
    ],
)
def test_a_run_whose_ledger_checkpoints_or_steps_are_gone_begins_nothing(
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
