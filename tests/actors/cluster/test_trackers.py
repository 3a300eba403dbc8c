"""Scalars for trackers: each once, anew for a new lineage; what fails there is a log line and no end of the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.cluster import cli
from actors.cluster.runs import trackers
from actors.cluster.runs.trackers import Point
from runtime.logs.writer import host_log
from tests.actors.cluster.test_tensorboard import learn
from tests.actors.replay.ledger_tools import Play


class Kept:
    """A tracker's runs in memory."""

    def __init__(self) -> None:
        self.runs: list[list[tuple[str, int, float]]] = []
        self.ended = 0

    def begin(self, name: str, group: str, folder: Path) -> Kept:
        assert name.startswith(f"{group}-")
        self.runs.append([])
        return self

    def log(self, points: Sequence[Point]) -> None:
        self.runs[-1] += [("rl/loss", one.step, one.scalars["rl/loss"]) for one in points]

    def end(self) -> None:
        self.ended += 1


def test_each_step_is_sent_once_and_a_new_lineage_begins_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, play = Kept(), Play(tmp_path)
    monkeypatch.setitem(trackers.TRACKERS, "wandb", kept.begin)
    play.rl()
    learn(play, loss=0.5)
    play.checkpointed("0.1")
    looks = 0

    def ended(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            learn(play, loss=0.25)
        elif looks == 3:
            play.resumed("1.1", "0.1")
            learn(play, loss=0.125)
        return looks == 3

    trackers.send(tmp_path, "wandb", ended)
    first, second = [("rl/loss", 1, 0.5), ("rl/loss", 2, 0.25)], [("rl/loss", 1, 0.5), ("rl/loss", 2, 0.125)]
    assert kept.runs == [first, second]
    assert kept.ended == 2


async def test_a_tracker_that_fails_is_logged_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = host_log(tmp_path, "main")
    monkeypatch.setattr(trackers, "MODULE", "no_such_module")
    followed = asyncio.ensure_future(trackers.follow(tmp_path, ["wandb"], log))
    async with asyncio.timeout(30):
        while "tracker_stopped" not in (tmp_path / "logs/main.jsonl").read_text():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
    assert not followed.done()
    followed.cancel()
    with suppress(asyncio.CancelledError):
        await followed
    log.close()
    assert "No module named no_such_module" in (tmp_path / "logs/main.jsonl").read_text()


def test_a_tracker_that_is_not_installed_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert cli.main(["run", "smoke", "--dry-run", "--set", "run.trackers=[mlflow]"]) == 2
    mend = f"{sys.executable} -m pip install 'computerrl[trackers]'"
    assert f"run.trackers: mlflow is not installed: {mend}" in capsys.readouterr().err


def test_mlflow_is_sent_what_there_is_in_few_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent: list[int] = []
    client = SimpleNamespace(
        get_experiment_by_name=lambda _: SimpleNamespace(experiment_id="e"),
        create_run=lambda *_, **__: SimpleNamespace(info=SimpleNamespace(run_id="r")),
        log_batch=lambda _, metrics: sent.append(len(metrics)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=lambda *parts: parts))
    sink = trackers.TRACKERS["mlflow"]("name", "group", tmp_path)
    sink.log([Point(step, 0.0, {"rl/loss": 1.0, "rl/kl": 0.5}) for step in range(600)])
    assert sent == [1000, 200]
