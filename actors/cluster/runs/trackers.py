"""A run's curves, from its ledger to TensorBoard and to the trackers that its file names, while it goes on.

Invariant: a curve holds each step that counts once. A start, a resume or a new lineage writes all of it again: as
another event file, or as another run of the group that has the run's name. What hangs or fails in a tracker's process
hinders no training.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import select
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster.config.suites import untrained_families
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER, reading
from runtime.errors import ConfigError, StoreError
from runtime.logs.events import declare
from runtime.logs.writer import ActorLog
from runtime.messaging.message import Version
from runtime.program import check_origin

# TensorBoard's file, or a tracker, takes nothing more; the run goes on without it.
SCALARS_STOPPED = declare("scalars_stopped", "warning", cause=str)
TRACKER_STOPPED = declare("tracker_stopped", "warning", tracker=str, cause=str)
MODULE = "actors.cluster.runs.trackers"
PROJECT = "computerrl"
FOLDER = "trackers"  # of a run: what trackers keep on this machine, and what they print
TENSORBOARD = "tensorboard"  # its folder of a run, too
PERIOD_S = 5.0  # how far curves may lie behind
END_S = 60.0  # for the last scalars to be sent
MLFLOW_BATCH = 1000  # metrics of one request, at most
CAUSE_CHARS = 400


class Point(NamedTuple):
    """The scalars of one step or round, by tag."""

    step: int
    wall_s: float  # since the epoch
    scalars: dict[str, float]


class Tracker(NamedTuple):
    """One run of a tracker."""

    log: Callable[[Sequence[Point]], None]
    end: Callable[[], None]


def _each(log: Callable[[Point], object], end: Callable[[], None]) -> Tracker:
    def every(points: Sequence[Point]) -> None:
        for point in points:
            log(point)

    return Tracker(every, end)


def _tensorboard(name: str, group: str, folder: Path) -> Tracker:
    """An event file. TensorBoard's own writer has a thread that ends with a traceback on a full disk."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(exist_ok=True)
    old = list(folder.glob("events.out.tfevents.*"))
    file = (folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}").open("wb")
    records: Any = RecordWriter(file)
    event, summary = event_pb2.Event, summary_pb2.Summary

    def log(points: Sequence[Point]) -> None:
        for step, wall_s, scalars in points:
            values = [summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            records.write(event(wall_time=wall_s, step=step, summary=summary(value=values)).SerializeToString())
        records.flush()
        while old:  # only now: a kill in between leaves too much rather than nothing
            old.pop().unlink()

    records.write(event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
    return Tracker(log, file.close)


def _wandb(name: str, group: str, folder: Path) -> Tracker:
    import wandb

    run = wandb.init(project=PROJECT, name=name, group=group, dir=str(folder))
    run.define_metric("*", step_metric="step")  # a round's figures may come after later steps'
    return _each(lambda point: run.log({"step": point.step, **point.scalars}), run.finish)


def _trackio(name: str, group: str, folder: Path) -> Tracker:
    os.environ.setdefault("TRACKIO_DIR", str(folder))
    import trackio

    trackio.init(project=PROJECT, name=name, group=group, embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return _each(lambda point: trackio.log(point.scalars, step=point.step), trackio.finish)


def _mlflow(name: str, group: str, folder: Path) -> Tracker:
    os.environ.setdefault("MLFLOW_TRACKING_URI", folder.absolute().as_uri())
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder takes no server and no database
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient()
    known = client.get_experiment_by_name(PROJECT)
    experiment = known.experiment_id if known else client.create_experiment(PROJECT)
    run = client.create_run(experiment, tags={"mlflow.runName": name, "group": group}).info.run_id

    def log(points: Sequence[Point]) -> None:
        metrics = [
            Metric(mlflow_name(tag), value, int(point.wall_s * 1000), point.step)
            for point in points
            for tag, value in point.scalars.items()
        ]
        for first in range(0, len(metrics), MLFLOW_BATCH):
            client.log_batch(run, metrics=metrics[first : first + MLFLOW_BATCH])

    return Tracker(log, lambda: client.set_terminated(run))


TRACKERS: dict[str, Callable[[str, str, Path], Tracker]] = {
    TENSORBOARD: _tensorboard, "wandb": _wandb, "trackio": _trackio, "mlflow": _mlflow,
}  # fmt: skip


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


class CurveSender:
    """Sends the ledger of the run at `run_dir` to one tracker, each point once. Every method blocks."""

    def __init__(self, run_dir: Path, tracker: str) -> None:
        self._run_dir, self._tracker = run_dir, tracker
        self._sink: Tracker | None = None
        self.begin_again()

    def begin_again(self) -> None:
        """Send all with the next call: how much the tracker has of the last one is unknown."""
        self._lineages, self._lease, self._rounds = -1, 0, frozenset[int]()  # as of the last look

    def catch_up(self) -> None:
        """Send what the ledger has got since the last call. Raises OSError, StoreError and the tracker's own errors."""
        points, whole = self.new()
        if whole:
            with suppress(OSError):  # all of it is sent again
                self.close()
            name = f"{self._run_dir.name}-{time.strftime('%m%d-%H%M%S')}"
            folder = self._run_dir / (TENSORBOARD if self._tracker == TENSORBOARD else FOLDER)
            self._sink = TRACKERS[self._tracker](name, self._run_dir.name, folder)
        if self._sink is not None and (points or whole):
            self._sink.log(points)

    def close(self) -> None:
        """Say that no more comes. Raises OSError and the tracker's own errors."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.end()

    def new(self) -> tuple[list[Point], bool]:
        """What was added since the last call, and whether it is all: at first, and after a new lineage.

        Raises StoreError.
        """
        if not (self._run_dir / LEDGER).is_file():
            return [], False  # the run has only begun
        with reading(self._run_dir) as ledger:
            if not queries.at_one_moment(ledger):
                return [], False
            lineages = queries.lineages(ledger)
            whole = lineages != self._lineages
            lease, rounds = (0, frozenset[int]()) if whole else (self._lease, self._rounds)
            steps = queries.steps(ledger, after=lease)
            closed = [row for row in queries.rounds(ledger) if row["said"] and row["id"] not in rounds]
            points = []
            for row in steps:
                named = ((f"{row['phase']}/{name}", value) for name, value in queries.figures_of(row).items())
                points.append(_point(named, Version.parse(row["made"]).step, row["wall"]))
            trained = queries.trained_families(ledger) if closed else ()
            for row in closed:
                event = json.loads(row["said"])
                named = ((f"eval/{name}", value) for name, value in of_round(event, trained))
                points.append(_point(named, Version.parse(event["version"]).step, row["wall"]))
        self._lineages, self._lease = lineages, max([lease, *(row["id"] for row in steps)])
        self._rounds = rounds.union(row["id"] for row in closed)
        return points, whole


def send(run_dir: Path, tracker: str, ended: Callable[[float], bool]) -> None:
    """Send what the ledger gets until `ended(seconds)`, which waits so long for the end, says so; then the last."""
    sender, over = CurveSender(run_dir, tracker), False
    while not over:
        over = ended(PERIOD_S)
        with suppress(StoreError):  # a ledger that can't be read now is read at the next look
            sender.catch_up()
    sender.close()


async def follow(run_dir: Path, trackers: Sequence[str], log: ActorLog, period_s: float = PERIOD_S) -> None:
    """Keep TensorBoard's file, and a process for each tracker, until cancelled; one that ends before is logged."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_event_file(run_dir, log, period_s))
        for tracker in trackers:
            group.create_task(_process(run_dir, tracker, log))


async def _event_file(run_dir: Path, log: ActorLog, period_s: float) -> None:
    """Write scalars every `period_s` seconds until cancelled, and then the last ones.

    A disk that fails ends neither the run nor the writing: it is logged once and made good later.
    """
    sender, failing = CurveSender(run_dir, TENSORBOARD), False
    step: asyncio.Future[None] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(sender.catch_up))
            try:
                await asyncio.shield(step)
                failing = False
            except (OSError, StoreError) as error:
                if not failing:
                    log.emit(SCALARS_STOPPED, cause=str(error))
                failing = True
                sender.begin_again()
            await asyncio.sleep(period_s)
    finally:
        if step is not None:
            await asyncio.wait([step])  # a thread can't be cancelled, and two must not write
        try:
            sender.catch_up()
            sender.close()
        except (OSError, StoreError) as error:
            log.emit(SCALARS_STOPPED, cause=str(error))


async def _process(run_dir: Path, tracker: str, log: ActorLog) -> None:
    """Log why a tracker's process has ended, which gets `END_S` for the last scalars when this is cancelled."""
    child, printed = None, run_dir / FOLDER / f"{tracker}.log"
    try:
        printed.parent.mkdir(exist_ok=True)
        with printed.open("wb") as out:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", MODULE, str(run_dir), tracker, stdin=asyncio.subprocess.PIPE, stdout=out,
                stderr=out, start_new_session=True, env={**os.environ, "PYTHONPATH": str(check_origin().root)},
            )  # fmt: skip
        await child.wait()
        cause = next(reversed(printed.read_text(errors="replace").strip().splitlines()), f"status {child.returncode}")
    except OSError as error:
        cause = str(error)
    except asyncio.CancelledError:
        if child is not None and child.stdin is not None:
            child.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await child.wait()
        raise
    finally:
        if child is not None and child.returncode is None:
            child.kill()
    log.emit(TRACKER_STOPPED, tracker=tracker, cause=cause[:CAUSE_CHARS])


def _point(values: Iterator[tuple[str, float]], step: int, wall_s: float) -> Point:
    return Point(step, wall_s, {tag: value for tag, value in values if math.isfinite(value)})


def of_round(event: Mapping[str, Any], trained: Collection[str] = ()) -> Iterator[tuple[str, float]]:
    """`success/DECODING/...` and `pass_at_K/DECODING` of a closed round's event, in a run that trains so."""
    decoding = "greedy" if event["temperature"] == 0 else f"t={event['temperature']:g}"
    families, instances = event["families"], event["instances"]
    never = untrained_families(instances, trained)
    parts = {"": instances.keys() - never or never, "/never_trained": never if instances.keys() - never else ()}
    for name, part in parts.items():  # the first is what a run is judged by, as in its report
        if part:
            won = sum(families[family] * instances[family] for family in part)
            yield f"success/{decoding}{name}", won / sum(instances[family] for family in part)
    for family, share in families.items():
        yield f"success/{decoding}/{family}", float(share)
    whole = "/all_families" if parts["/never_trained"] else ""
    for k, share in event["pass_at"].items():
        yield f"pass_at_{k}/{decoding}{whole}", float(share)


if __name__ == "__main__":
    send(Path(sys.argv[1]), sys.argv[2], lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))
