"""Trackers without a network: what a run sends is read back from what each keeps. `make extras` installs them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from actors.cluster.runs import trackers
from tests.actors.cluster.test_trackers import learn
from tests.actors.replay.ledger_tools import Play

LOSSES = [(1, 0.5), (2, 0.25)]


def sent(run: Path, tracker: str) -> Path:
    """A run of two steps, sent by a process that is told to end at once; where the tracker keeps it."""
    pytest.importorskip(tracker, reason=f"{tracker} is not installed: make extras")
    play = Play(run)
    play.rl()
    learn(play, loss=0.5)
    play.checkpointed("0.1")
    learn(play, loss=0.25)
    (run / trackers.FOLDER).mkdir()
    command = [sys.executable, "-P", "-m", trackers.MODULE, str(run), tracker]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=200)
    return run / trackers.FOLDER


pytestmark = pytest.mark.timeout(300)


@pytest.mark.filterwarnings("default")
def test_mlflow_has_each_step_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = sent(tmp_path, "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=folder.as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name(trackers.PROJECT).experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.tags["group"] == tmp_path.name
    assert [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, "rl/loss")] == LOSSES


def test_trackio_has_each_step_once(tmp_path: Path) -> None:
    folder = sent(tmp_path, "trackio")
    with sqlite3.connect(folder / f"{trackers.PROJECT}.db") as kept:
        rows = kept.execute("select step, json_extract(metrics, '$.\"rl/loss\"') from metrics order by step").fetchall()
    assert rows == LOSSES


def test_wandb_keeps_a_run_for_later_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = sent(tmp_path, "wandb")
    (kept,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    body = kept.read_bytes()
    assert body.count(b"rl/loss") >= len(LOSSES)
    assert tmp_path.name.encode() in body
