from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors.cluster.runs import run_folder
from runtime.errors import ConfigError
from runtime.program import program


def record(name: str, started_s: float = 1.0, file: str = "local") -> run_folder.RunRecord:
    return run_folder.RunRecord(
        name=name, file=file, seed=7, build="b", versions={}, started=run_folder.iso(started_s), started_s=started_s
    )


def test_a_claimed_folder_is_refused_and_names_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a"
    run = run_folder.claim(path, record("a"), resume=False)
    assert run_folder.state(path, run_folder.read_record(path)) == "running"
    with pytest.raises(ConfigError, match="run a is in use by process"):
        run_folder.claim(path, record("a"), resume=True)
    run.end("ok", None)
    assert run_folder.state(path, run_folder.read_record(path)) == "ok"


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


def test_an_existing_run_is_only_continued_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a"
    begun = record("a", 5.0)
    run_folder.claim(path, begun, resume=False).end("stopped", "interrupted")
    with pytest.raises(ConfigError, match="exists already"):
        run_folder.claim(path, record("a"), resume=False)
    again = run_folder.claim(path, record("a", 9.0), resume=True)
    assert (again.record.resumed, again.record.started_s, again.record.verdict) == (1, 5.0, None)
    again.end("ok", None)


def test_a_resume_of_some_gives_the_others_not_up(tmp_path: Path) -> None:
    path, begun = tmp_path / "a", run_folder.Asked(seeds=[0, 1, 2], overrides=["a=1"])
    run_folder.claim(path, msgspec.structs.replace(record("a"), asked=begun), resume=False).end("stopped", None)
    some = run_folder.Asked(seeds=[1], overrides=["a=1", "b=2"])
    again = run_folder.claim(path, msgspec.structs.replace(record("a"), asked=some), resume=True)
    again.end("ok", None)
    assert run_folder.read_record(path).asked == run_folder.Asked(seeds=[0, 1, 2], overrides=["a=1", "b=2"])
    assert run_folder.Asked(seeds=[1]).joined(run_folder.Asked(seeds=[3, 1])).seeds == [1, 3]


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


def test_runs_are_found_by_name_and_by_newest(tmp_path: Path) -> None:
    for index, name in enumerate(("b", "a", "c")):
        run = record(name, float(index), "smoke" if name == "c" else "deploy/local.yaml")
        run_folder.claim(tmp_path / name, run, resume=False).end("ok", None)
    assert [path.name for path, _ in run_folder.all_runs(tmp_path)] == ["b", "a", "c"]
    assert run_folder.find(tmp_path, "last").name == "c"
    with pytest.raises(ConfigError, match=r"no run bb in .*; did you mean b"):
        run_folder.find(tmp_path, "bb")
    assert run_folder.newest(tmp_path, None, lambda path, _: path.name != "c", "run").name == "a"
    with pytest.raises(ConfigError, match="nothing to resume"):
        run_folder.newest(tmp_path, None, lambda *_: False, "run")
