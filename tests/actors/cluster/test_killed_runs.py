"""A real run loses each of its processes to kill -9, one after the other, then its entry point, and is resumed."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from actors.cluster import cli
from actors.replay.database import queries
from actors.replay.database.auditing import audit, refuse_unsound
from actors.replay.database.ledger_file import connect, reading
from actors.replay.messages import StepPayload
from deploy.recipes import seeing
from policy.pictures import picture_size
from runtime.control import query_status
from runtime.logs.reader import read_logs
from runtime.segments import read_blob

pytestmark = pytest.mark.desktop

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = {
    "demos.count": 14,
    "entropulse.bc_steps": 45,
    "entropulse.total_rl_steps": 0,
    "learner.checkpoint_every": 8,
    "evaluation.enabled": "true",
    "tasks.eval": "[{family: file_manager, split: held-out, count: 10}]",
    "run.require": "{bc_steps: 45}",
}
SEEING = {"tasks.eval": "[{family: picture_name, split: held-out, count: 10}]", "learner.vision": "merger"}
PATIENCE_S = 240.0


def command(runs: Path, file: str, *more: str) -> list[str]:
    settings = SETTINGS | ({"model.path": runs / "seeing"} | SEEING if file == "vision" else {})
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = ["run", str(ROOT / f"deploy/{file}.yaml"), "--name", "victim", "--runs", str(runs), *more]
    return [sys.executable, "-P", "-m", "actors.cluster.cli", *run, *([] if "--resume" in more else sets)]


class Watched:
    """A run under way, seen through its logs and its control socket."""

    def __init__(self, runs: Path, file: str, *more: str) -> None:
        self.folder = runs / "victim"
        self.process = subprocess.Popen(
            command(runs, file, *more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lines(self, event: str) -> list[dict[str, Any]]:
        return list(read_logs(self.folder, event=event)) if (self.folder / "logs").is_dir() else []

    def until(self, what: str, reached: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not reached():
            assert self.process.poll() is None, f"ended before {what}: {self.output()}"
            assert time.monotonic() < give_up, f"no {what} within {PATIENCE_S:g} s"
            time.sleep(0.2)

    def pid_of(self, actor: str) -> int:
        return next(found.pid for found in query_status(self.folder) if found.name == actor)

    def output(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()[-3000:]


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", ["smoke", "vision"])
def test_a_run_survives_the_loss_of_every_process(tmp_path: Path, file: str) -> None:
    if file == "vision":
        seeing.make(tmp_path / "seeing")
    run = Watched(tmp_path, file)
    try:
        run.until("demonstrations", lambda: len(run.lines("episode_committed")) >= 4)
        os.kill(run.pid_of("desktop/0"), signal.SIGKILL)
        run.until("cloning", lambda: len(run.lines("learner_step")) >= 12)
        os.kill(run.pid_of("rank/0"), signal.SIGKILL)
        run.until("a new lineage", lambda: bool(run.lines("learner_resumed")))
        run.until("evaluation", lambda: any(line["lane"] == "eval" for line in run.lines("episode_committed")))
        os.kill(int(run.lines("sampler_ready")[-1]["pid"]), signal.SIGKILL)
        run.until("the engine's return", lambda: bool(run.lines("engine_restarted")))
        children = psutil.Process(run.process.pid).children(recursive=True)
        run.process.kill()
        run.process.wait(timeout=30)
        gone, alive = psutil.wait_procs(children, timeout=30)
        assert not alive, f"{alive} outlive their run; {len(gone)} ended"
    finally:
        run.process.kill()
        run.process.communicate(timeout=30)  # closes its pipe, too
    again = Watched(tmp_path, file, "--resume")
    output, _ = again.process.communicate(timeout=PATIENCE_S)
    assert again.process.returncode == 0, output[-3000:]
    assert list((again.folder / "tensorboard").iterdir())
    connection, _ = connect(again.folder / "ledger.sqlite")
    try:
        refuse_unsound(connection, strata=False)
        trained = connection.execute("SELECT COUNT(*) FROM leases WHERE made IS NOT NULL").fetchone()[0]
        played = connection.execute("SELECT COUNT(*) FROM episodes WHERE lane = 'eval'").fetchone()[0]
    finally:
        connection.close()
    assert trained >= 45
    assert played >= 10, "every held-out task was played"


PICTURES = "[{{family: picture_name, split: {}, count: {}}}]"
SEEN = {
    "tasks.demo": PICTURES.format("train", 6),
    "tasks.eval": PICTURES.format("held-out", 2),
    "demos.count": "4",
    "entropulse.bc_steps": "2",
    "entropulse.total_rl_steps": "0",
    "run.require": "{bc_steps: 2}",
    "replay.sft_batch_size": "4",
    "desktops.count": "2",
    "desktops.warm_pool": "0",
    "learner.sft.threads": "1",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_clones_and_evaluates_what_was_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeing.make(tmp_path / "seeing")
    sets = [word for key, value in SEEN.items() for word in ("--set", f"{key}={value}")]
    sets += ["--set", f"model.path={tmp_path / 'seeing'}"]
    words = ["run", "vision", "--name", "v", "--runs", str(tmp_path), *sets]
    ran = subprocess.run([sys.executable, "-P", "-m", "actors.cluster.cli", *words], capture_output=True, text=True)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    run, seen = tmp_path / "v", dict[str, set[int]]()
    with reading(run) as db:
        checked = audit(db, run / "segments")
        for row in queries.episodes(db):
            for ref in queries.steps_of(db, row["token"]):
                step = msgspec.msgpack.decode(read_blob(run / "segments", ref.blob), type=StepPayload)
                (picture,) = step.pictures
                png = read_blob(run / "segments", picture.blob)
                assert hashlib.sha256(png).hexdigest() == picture.digest
                assert picture_size(png) == (224, 224)
                seen.setdefault(row["lane"], set()).add(step.prompt_ids.count(step.prompt_ids[picture.at]))
    assert not [one for one in checked if one.wrong]
    assert seen == {"demo": {64}, "eval": {64}}, "each prompt has the pads of one picture"
    assert cli.main(["demos", "export", "v", str(tmp_path / "out.parquet"), "--runs", str(tmp_path)]) == 2
    assert "a recording holds texts alone" in capsys.readouterr().err
