"""A run's scalars for W&B, trackio and MLflow, sent while it goes on.

Invariant: a tracker's run is made from the ledger and holds each step that stands once. A start, a resume or a new
lineage begins another one of the group that has the run's name. Each tracker has a process of its own: what hangs or
fails there hinders no training, and it ends with the run.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from actors.cluster.events import TRACKER_STOPPED
from actors.cluster.runs.tensorboard import PERIOD_S, LedgerScalars, Scalar
from runtime.errors import ConfigError, StoreError
from runtime.logs.writer import ActorLog
from runtime.program import check_origin

MODULE = "actors.cluster.runs.trackers"
PROJECT = "computerrl"
FOLDER = "trackers"  # of a run: what trackers keep on this machine, and what they say
END_S = 60.0  # for the last scalars to be sent
MLFLOW_BATCH = 1000  # metrics of one request, at most
CAUSE_CHARS = 400


class Sink(Protocol):
    """One run of a tracker."""

    def add(self, scalars: Sequence[Scalar]) -> None:
        """Send them."""

    def end(self) -> None:
        """Say that no more come."""


class _Wandb:
    def __init__(self, name: str, group: str, folder: Path) -> None:
        import wandb

        self._run = wandb.init(project=PROJECT, name=name, group=group, dir=str(folder))
        self._run.define_metric("*", step_metric="step")  # a round's figures may come after later steps'

    def add(self, scalars: Sequence[Scalar]) -> None:
        for step, values in _by_step(scalars):
            self._run.log({"step": step, **values})

    def end(self) -> None:
        self._run.finish()


class _Trackio:
    def __init__(self, name: str, group: str, folder: Path) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(folder))
        import trackio

        self._trackio = trackio
        trackio.init(project=PROJECT, name=name, group=group, embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def add(self, scalars: Sequence[Scalar]) -> None:
        for step, values in _by_step(scalars):
            self._trackio.log(values, step=step)

    def end(self) -> None:
        self._trackio.finish()


class _Mlflow:
    def __init__(self, name: str, group: str, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_TRACKING_URI", folder.absolute().as_uri())
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder takes no server and no database
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric: Callable[..., Any] = Metric
        self._client = MlflowClient()
        known = self._client.get_experiment_by_name(PROJECT)
        experiment = known.experiment_id if known else self._client.create_experiment(PROJECT)
        made = self._client.create_run(experiment, tags={"mlflow.runName": name, "group": group})
        self._run = made.info.run_id

    def add(self, scalars: Sequence[Scalar]) -> None:
        sent = [self._metric(mlflow_name(one.tag), one.value, int(one.wall_s * 1000), one.step) for one in scalars]
        for first in range(0, len(sent), MLFLOW_BATCH):
            self._client.log_batch(self._run, metrics=sent[first : first + MLFLOW_BATCH])

    def end(self) -> None:
        self._client.set_terminated(self._run)


SINKS: Mapping[str, Callable[[str, str, Path], Sink]] = {"wandb": _Wandb, "trackio": _Trackio, "mlflow": _Mlflow}


def _by_step(scalars: Iterable[Scalar]) -> Iterable[tuple[int, dict[str, float]]]:
    for step, some in groupby(scalars, lambda one: one.step):
        yield step, {one.tag: one.value for one in some}


def mlflow_name(tag: str) -> str:
    """A tag in the characters that MLflow takes: `success/t=1` is `success/t 1`."""
    return "".join(c if c.isalnum() or c in "_-./ " else " " for c in tag)


def refuse_missing(trackers: Iterable[str]) -> None:
    """Raise ConfigError for a tracker whose package is not installed."""
    for name in trackers:
        if find_spec(name) is None:
            raise ConfigError(
                f"run.trackers: {name} is not installed: {sys.executable} -m pip install 'computerrl[trackers]'"
            )


def send(run_dir: Path, tracker: str, ended: Callable[[float], bool]) -> None:
    """Send what the ledger gets until `ended(seconds)`, which waits so long for the end, says so; then the last."""
    scalars, sink = LedgerScalars(run_dir), None
    over = False
    while True:
        with suppress(StoreError):  # a ledger that can't be read now is read at the next look
            found, anew = scalars.new()
            if anew:
                if sink is not None:
                    sink.end()
                name = f"{run_dir.name}-{time.strftime('%m%d-%H%M%S')}"
                sink = SINKS[tracker](name, run_dir.name, run_dir / FOLDER)
            if sink is not None and found:
                sink.add(found)
        if over:
            break
        over = ended(PERIOD_S)
    if sink is not None:
        sink.end()


async def follow(run_dir: Path, trackers: Sequence[str], log: ActorLog) -> None:
    """Keep a process per tracker until cancelled; one that ends before is logged."""
    async with asyncio.TaskGroup() as group:
        for tracker in trackers:
            group.create_task(_one(run_dir, tracker, log))
        await asyncio.Event().wait()


async def _one(run_dir: Path, tracker: str, log: ActorLog) -> None:
    try:
        cause = await _until_it_ends(run_dir, tracker)
    except OSError as error:
        cause = str(error)
    log.emit(TRACKER_STOPPED, tracker=tracker, cause=cause[:CAUSE_CHARS])


async def _until_it_ends(run_dir: Path, tracker: str) -> str:
    """Why a tracker's process has ended. Ends it when it is cancelled, which gives it `END_S` for the last scalars."""
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    said = folder / f"{tracker}.log"
    with said.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", MODULE, str(run_dir), tracker, stdin=asyncio.subprocess.PIPE, stdout=out,
            stderr=out, start_new_session=True, env={**os.environ, "PYTHONPATH": str(check_origin().root)},
        )  # fmt: skip
    try:
        await child.wait()
    except asyncio.CancelledError:
        assert child.stdin is not None
        child.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await child.wait()
        raise
    finally:
        if child.returncode is None:
            child.kill()
    lines = said.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"status {child.returncode}"


def _end_of_input(seconds: float) -> bool:
    return bool(select.select([sys.stdin], [], [], seconds)[0])


if __name__ == "__main__":
    send(Path(sys.argv[1]), sys.argv[2], _end_of_input)
