"""A pool of demonstrators on real desktops: all strata, who made which step, and a key that stays out of every file.

The remote model is a stand-in: a real HTTP server with the protocol and without a model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.runs import recordings
from actors.replay.demos import demo_files

STAND_IN = Path(__file__).resolve().parents[1] / "desktop" / "endpoint_stand_in.py"
KEY = "not-to-be-found-anywhere"
FILE = """
run: {seed: 2}
tasks:
  demo: [{family: files_move, split: train, count: 4}]
  max_turns: 9
demos:
  count: 8
  attempts_per_task: 2
  mixed_attempts: 1
  resample_rounds: 1
  demonstrators:
    - {type: oracle, name: sound}
    - {type: oracle, name: hasty, haste: 0.6}
    - {type: endpoint, name: far, url: "URL", model: stand-in, key_env: FAR_KEY, timeout_s: 20}
desktops: {count: 2, warm_pool: 1, screenshots: none, provider: {type: sandbox, state_dir: STATE}}
"""


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_pool_records_what_it_solves_and_says_who_did(
    tmp_path: Path, state_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen([sys.executable, STAND_IN, "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            (tmp_path / "pool.yaml").write_text(FILE.replace("URL", url).replace("STATE", state_dir))
            monkeypatch.chdir(tmp_path)
            words = ["demos", "record", "--deploy", "pool.yaml", "--name", "cold"]
            monkeypatch.delenv("FAR_KEY", raising=False)
            assert cli.main(words) == 2
            assert "far: key_env names FAR_KEY, which is not set" in capsys.readouterr().err
            monkeypatch.setenv("FAR_KEY", KEY)
            command = [sys.executable, "-P", "-m", "actors.cluster.cli", *words]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
        finally:
            server.terminate()
    assert "tasks: files_move/" in done.stdout, done.stdout + done.stderr
    header, found = demo_files.read(tmp_path / "runs" / "cold")
    assert {one.task for one in header.tasks} == {f"files_move/train/{n}" for n in range(4)}
    demos = list(found)
    assert header.demos == len(demos) > 0
    for demo in demos:
        made = {step.payload.by for step in demo.steps}
        assert made <= {"sound", "hasty", "far"}
        assert demo.member == "mixed" or made == {demo.member}
    assert cli.main(["demos", "show", "cold", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sum(shown["tasks"]["files_move"].values()) == 4
    assert recordings.header_of(tmp_path / "runs" / "cold") == header
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
