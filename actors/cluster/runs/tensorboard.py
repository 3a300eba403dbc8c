"""A run's scalars as TensorBoard event files, written while it goes on.

Invariant: the folder holds one event file, made from the run's ledger. A start, a resume or a new lineage writes it
again. Each step that stands is in it exactly once.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

from actors.cluster.events import SCALARS_STOPPED
from actors.cluster.runs.scalars import LedgerPosition, Scalar, of_ledger
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER, reading
from runtime.errors import StoreError
from runtime.logs.writer import ActorLog

FOLDER = "tensorboard"
PERIOD_S = 5.0  # how far the file may lie behind


class EventFile:
    """The event file of the run at `run_dir`. Every method blocks."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._run_dir = run_dir
        self._seen = LedgerPosition()
        self._file: IO[bytes] | None = None

    def catch_up(self) -> int:
        """Write what the ledger has got since the last call; returns how many scalars. Raises OSError, StoreError."""
        if not (self._run_dir / LEDGER).is_file():
            return 0  # the run has only begun
        with reading(self._run_dir, of_this_form=False) as ledger:
            if not queries.at_one_moment(ledger):
                return 0
            found, seen = of_ledger(ledger, self._seen)
        anew = self._file is None or seen.lineages != self._seen.lineages
        count = self._again(found) if anew else self._add(found)
        self._seen = seen
        return count

    def begin_anew(self) -> None:
        """Write all of it with the next call: how much of the last call is in the file is unknown."""
        self._seen = LedgerPosition()

    def close(self) -> None:
        """Close the file. Raises OSError."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _again(self, found: list[Scalar]) -> int:
        with suppress(OSError):  # all of it is written anew
            self.close()
        self._folder.mkdir(exist_ok=True)
        old = list(self._folder.glob("events.out.tfevents.*"))
        # Written here and not by TensorBoard's own writer, whose thread ends with a traceback on a full disk.
        self._file = (self._folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}").open("wb")
        count = self._add(found, first=True)
        for path in old:  # only now, so that a kill in between leaves too much rather than nothing
            path.unlink()
        return count

    def _add(self, found: Iterable[Scalar], *, first: bool = False) -> int:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        records = RecordWriter(self._file)
        if first:
            records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        count = 0
        for scalar in found:
            value = Summary.Value(tag=scalar.tag, simple_value=scalar.value)
            event = Event(wall_time=scalar.wall_s, step=scalar.step, summary=Summary(value=[value]))
            records.write(event.SerializeToString())
            count += 1
        records.flush()
        return count


async def follow(run_dir: Path, log: ActorLog, period_s: float = PERIOD_S) -> None:
    """Write scalars every `period_s` seconds until cancelled, and then the last ones.

    A disk that fails ends neither the run nor the writing: it is said once, and made good when the disk is well again.
    """
    file = EventFile(run_dir)
    failing = False
    step: asyncio.Future[int] | None = None
    try:
        while True:
            step = asyncio.ensure_future(asyncio.to_thread(file.catch_up))
            try:
                await asyncio.shield(step)
                failing = False
            except (OSError, StoreError) as error:
                if not failing:
                    log.emit(SCALARS_STOPPED, cause=str(error))
                failing = True
                file.begin_anew()
            await asyncio.sleep(period_s)
    except asyncio.CancelledError:
        await _last(file, step, log)
        raise
    finally:
        with suppress(OSError):  # said by then
            file.close()


async def _last(file: EventFile, step: asyncio.Future[int] | None, log: ActorLog) -> None:
    try:
        if step is not None:
            await asyncio.wait([step])  # a thread can't be cancelled, and two must not write
        file.catch_up()
    except (OSError, StoreError) as error:
        log.emit(SCALARS_STOPPED, cause=str(error))
