"""A run's scalars as TensorBoard event files, written beside its logs while it goes on.

Invariant: the folder holds one event file, made from the run's logs, as far back as they reach; a start, a resume or a
lineage that begins anew writes it again, so no step is in it twice and none that was undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from actors.cluster.events import SCALARS_STOPPED
from actors.cluster.scalars import OF_INTEREST, REWINDS, Scalar, of_line, scalars
from runtime.logs import ActorLog
from runtime.logs_read import LogWatch

FOLDER = "tensorboard"
PERIOD_S = 5.0  # how far the file may lie behind


class EventFile:
    """The event file of the run at `run_dir`. Every method blocks."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._run_dir = run_dir
        self._watch = LogWatch(run_dir)
        self._writer: Any = None

    def catch_up(self) -> int:
        """Write what was logged since the last call; returns how many scalars."""
        lines = self._new_lines()
        if self._writer is None:
            return self._again(scalars(lines))
        if any(line["event"] == REWINDS for line in lines):
            self._watch.close()
            self._watch = LogWatch(self._run_dir)  # from the beginning: nothing that was logged is held in memory
            return self._again(scalars(self._new_lines()))
        return self._add(scalar for line in lines for scalar in of_line(line))

    def close(self) -> None:
        """Close the file."""
        self._watch.close()
        if self._writer is not None:
            self._writer.close()

    def _new_lines(self) -> list[dict[str, Any]]:
        return self._watch.new(OF_INTEREST)

    def _again(self, found: list[Scalar]) -> int:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is not None:
            self._writer.close()
        self._folder.mkdir(exist_ok=True)
        old = list(self._folder.glob("events.out.tfevents.*"))
        self._writer = EventFileWriter(str(self._folder))
        count = self._add(found)
        for path in old:  # only now, so that a kill in between leaves too much rather than nothing
            path.unlink()
        return count

    def _add(self, found: Iterable[Scalar]) -> int:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        count = 0
        for scalar in found:
            value = Summary.Value(tag=scalar.tag, simple_value=scalar.value)
            self._writer.add_event(Event(wall_time=scalar.wall_s, step=scalar.step, summary=Summary(value=[value])))
            count += 1
        self._writer.flush()
        return count


async def follow(run_dir: Path, log: ActorLog, period_s: float = PERIOD_S) -> None:
    """Write scalars every `period_s` seconds until cancelled, and then the last ones.

    A disk that fails ends the writing, said once, and not the run. Never returns by itself.
    """
    file = EventFile(run_dir)
    try:
        await _keep_up(file, period_s)
    except OSError as error:
        log.emit(SCALARS_STOPPED, cause=str(error))
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError from error  # it failed at the last ones, after the run had ended
        await asyncio.get_running_loop().create_future()
    finally:
        file.close()


async def _keep_up(file: EventFile, period_s: float) -> None:
    step: asyncio.Future[int] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(file.catch_up))
            await asyncio.shield(step)
            await asyncio.sleep(period_s)
    except asyncio.CancelledError:
        if step is not None:
            await step  # a thread can't be cancelled, and two must not write
        file.catch_up()
        raise
