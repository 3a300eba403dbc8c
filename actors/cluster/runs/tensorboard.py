"""A run's scalars as TensorBoard event files, written while it goes on.

Invariant: the folder holds one event file, made from the run's ledger. A start, a resume or a new lineage writes it
again. Each step that stands is in it exactly once. A step has one value per tag, but for rounds that play the same
weights.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from actors.cluster.events import SCALARS_STOPPED
from actors.cluster.runs.evaluation_rounds import untrained_families
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER, reading
from actors.replay.messages import Phase
from runtime.errors import StoreError
from runtime.logs.writer import ActorLog
from runtime.messaging.message import Version

FOLDER = "tensorboard"
PERIOD_S = 5.0  # how far the file may lie behind


class EventFile:
    """The event file of the run at `run_dir`. Every method blocks."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._scalars = LedgerScalars(run_dir)
        self._file: IO[bytes] | None = None

    def catch_up(self) -> int:
        """Write what the ledger has got since the last call; returns how many scalars. Raises OSError, StoreError."""
        found, anew = self._scalars.new()
        if anew:
            return self._again(found)
        return self._add(found) if found else 0

    def begin_anew(self) -> None:
        """Write all of it with the next call: how much of the last call is in the file is unknown."""
        self._scalars = LedgerScalars(self._scalars.run_dir)

    def close(self) -> None:
        """Close the file. Raises OSError."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _again(self, found: list[Scalar]) -> int:
        with suppress(OSError):  # all of it is written again
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


_NOT_SCALARS = frozenset(("lease", "version", "stay", "rl_step", "stay_step", "success"))  # of a step's evidence


class Scalar(NamedTuple):
    """One value of one curve."""

    tag: str
    step: int
    wall_s: float  # since the epoch
    value: float


class LedgerScalars:
    """The scalars of the ledger of the run at `run_dir`, each given once."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._seen: LedgerPosition | None = None

    def new(self) -> tuple[list[Scalar], bool]:
        """What was added since the last call, and whether it is all: at first, and after a new lineage.

        Raises StoreError.
        """
        if not (self.run_dir / LEDGER).is_file():
            return [], False  # the run has only begun
        with reading(self.run_dir, of_this_form=False) as ledger:
            if not queries.at_one_moment(ledger):
                return [], False
            found, seen = of_ledger(ledger, self._seen or LedgerPosition())
        anew = self._seen is None or seen.lineages != self._seen.lineages
        self._seen = seen
        return found, anew


class LedgerPosition(NamedTuple):
    """How far a ledger was read."""

    lineages: int = 0
    lease: int = 0  # the last that was read
    rounds: frozenset[int] = frozenset()


def of_ledger(ledger: queries.Database, seen: LedgerPosition) -> tuple[list[Scalar], LedgerPosition]:
    """What was added to `ledger` since `seen`, or all of it after a learner began again: then `lineages` differs."""
    lineages = queries.lineages(ledger)
    if lineages != seen.lineages:
        seen = LedgerPosition(lineages)
    found: list[Scalar] = []
    lease = seen.lease
    for row in queries.steps_since(ledger, lease):
        lease = row["id"]
        found += _finite(_of_step(row), Version.parse(row["made"]).step, row["wall"])
    rounds = set(seen.rounds)
    for row in queries.rounds_closed(ledger):
        if row["id"] not in rounds:
            rounds.add(row["id"])
            said = json.loads(row["said"])
            trained = queries.trained_families(ledger)
            named = ((f"eval/{name}", value) for name, value in of_round(said, trained))
            found += _finite(named, Version.parse(said["version"]).step, row["wall"])
    return found, LedgerPosition(lineages, lease, frozenset(rounds))


def _finite(values: Iterator[tuple[str, float]], step: int, wall_s: float) -> list[Scalar]:
    return [Scalar(tag, step, wall_s, value) for tag, value in values if math.isfinite(value)]


def _of_step(row: queries.Row) -> Iterator[tuple[str, float]]:
    """`PHASE/NAME` of the learner's figures, `rl/NAME` of the evidence."""
    for name, value in json.loads(row["figures"] or "{}").items():
        # The learner counts a segment's steps from 0, the evidence from 1: two values of one tag. None was no number.
        if name != "stay_step" and value is not None:
            yield f"{row['phase']}/{name}", float(value)
    if row["phase"] == Phase.RL and row["success"] is not None:  # cloning and pulses play no training episodes
        yield f"{Phase.RL}/success", float(row["success"])
    if row["body"]:
        yield from ((f"{Phase.RL}/{name}", value) for name, value in _numbers(json.loads(row["body"])))


def _numbers(evidence: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in evidence.items():
        if name in _NOT_SCALARS:
            continue
        if isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, dict):
            yield from ((f"{name}/{key}", float(part)) for key, part in value.items())


def of_round(said: Mapping[str, Any], trained: Collection[str] = ()) -> Iterator[tuple[str, float]]:
    """`success/DECODING/...` and `pass_at_K/DECODING` of what a closed round's event says, in a run that trains so."""
    decoding = "greedy" if said["temperature"] == 0 else f"t={said['temperature']:g}"
    families, instances = said["families"], said["instances"]
    never = untrained_families(instances, trained)
    parts = {"": instances.keys() - never or never, "/never_trained": never if instances.keys() - never else ()}
    for name, part in parts.items():  # the first is what a run is judged by, as in its report
        if part:
            won = sum(families[family] * instances[family] for family in part)
            yield f"success/{decoding}{name}", won / sum(instances[family] for family in part)
    for family, share in families.items():
        yield f"success/{decoding}/{family}", float(share)
    whole = "/all_families" if parts["/never_trained"] else ""
    for k, share in said["pass_at"].items():
        yield f"pass_at_{k}/{decoding}{whole}", float(share)
