"""Recordings of demonstrations: Parquet files, and the run folders that they were made in.

Each step's digest is checked, and a file that was cut short is refused. A file appears only when it is whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from actors.replay.database import queries
from actors.replay.database.ledger_file import reading
from actors.replay.demos.format import (
    FORMAT,
    Demo,
    DemoStep,
    RecordingHeader,
    TaskAttempts,
    digest_of_step,
    read_parquet,
    write_parquet,
)
from actors.replay.messages import Reservation, StepPayload, StepRef
from apis.actions.reasoning import spoken
from runtime.errors import PayloadLost, StoreError
from runtime.segments import read_blob


def read(path: Path, passed: Callable[[PayloadLost], None] | None = None) -> tuple[RecordingHeader, Iterator[Demo]]:
    """The header of a recording, and its demonstrations one by one. Raises StoreError, also while iterating.

    Of a run's folder, what can't be read is reported to `passed` instead; a file is taken whole or not at all.
    """
    if path.is_dir():
        return _read_run(path, passed)
    if path.suffix != ".parquet":
        raise StoreError(f"{path}: a recording is a run's folder or a .parquet file")
    header, demos = read_parquet(path)
    if header.format != FORMAT:
        raise StoreError(f"{path} has format {header.format!r}, this build reads {FORMAT!r}: export it again")
    return header, _checked(path, header, demos)


def refuse_unwritable(path: Path) -> None:
    """Raise StoreError unless `path` is named as a recording that can be written."""
    if path.suffix != ".parquet" or path.is_dir():
        raise StoreError(f"{path}: a recording is written as a .parquet file")


def _checked(path: Path, header: RecordingHeader, demos: Iterable[Demo]) -> Iterator[Demo]:
    count = 0
    for demo in demos:
        if count == header.demos:
            raise StoreError(f"{path} holds more than the {count} demonstrations that it says it holds")
        for number, step in enumerate(demo.steps):
            if digest_of_step(step.payload) != step.digest:
                raise StoreError(f"{path}: step {number} of {demo.task} is not what its digest {step.digest} says")
        count += 1
        yield demo
    if count != header.demos:
        raise StoreError(f"{path} holds {count} of the {header.demos} demonstrations that it says it holds")


def unfit(demo: Demo, vocabulary: int = 0) -> str:
    """Why a model of so many token ids, 0 where that is open, could learn nothing from it; "" where it can."""
    if not any(step.well_formed for step in demo.steps):
        return "no step of it is well-formed"
    for number, step in enumerate(demo.steps):
        if step.well_formed and not acts(step.payload):
            return f"step {number} did what its answer only thought of: {str(step.payload.action)[:80]}"
        for name in ("prompt_ids", "response_ids"):
            ids = getattr(step.payload, name)
            if not ids or min(ids) < 0 or 0 < vocabulary <= max(ids):
                seen = f"{min(ids)} to {max(ids)}, of {vocabulary or 'any'} that a model has" if ids else "empty"
                return f"{name} of step {number} are {seen}"
    if not (math.isfinite(demo.wall_s) and math.isfinite(demo.busy_s)):
        return "its times are no numbers"
    return ""


def acts(step: StepPayload) -> bool:
    """Whether the action that was carried out is outside the answer's reasoning, as far as its name tells."""
    spoken_text, thought, unclosed = spoken(step.response)
    if not thought and not unclosed:
        return True
    try:
        action = msgspec.json.decode(step.action or "", type=_Named)
    except (msgspec.DecodeError, RecursionError):
        return False
    names = (f".{action.name or action.function}(", *("WAIT", "DONE", "FAIL") * (action.function in ("wait", "exit")))
    return not unclosed and any(name in spoken_text for name in names)


class _Named(msgspec.Struct, frozen=True):
    """What of an action as JSON says what it is."""

    function: str
    name: str = ""  # of an application's function


def write(path: Path, header: RecordingHeader, demos: Iterable[Demo]) -> None:
    """Write a .parquet file, replacing what was there once it is whole. Raises StoreError."""
    refuse_unwritable(path)
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(scratch, header, demos)
        os.replace(scratch, path)
    except OSError as error:
        raise StoreError(f"can't write demonstrations to {path}: {error}") from error


def _read_run(
    folder: Path, passed: Callable[[PayloadLost], None] | None = None
) -> tuple[RecordingHeader, Iterator[Demo]]:
    """As `read`. Raises StoreError when there is no ledger of this build's form.

    A demonstration that can't be read is passed by and reported to `passed`; without that it raises PayloadLost.
    """
    with reading(folder) as database:
        meta = queries.meta(database)
        count = queries.demos(database)
        tried = [
            TaskAttempts(task=row[0], tries=row[1], wins=row[2], mixed_tries=row[3], mixed_wins=row[4])
            for row in queries.demo_tasks_tried(database)
        ]
        observations = queries.observations_of_demos(database)
    made_with = {key: meta.get(key, "") for key in ("tokenizer", "form", "actions")}
    header = RecordingHeader(format=FORMAT, demos=count, tasks=tried, observations=observations, **made_with)
    return header, _demos_of_run(folder, count, passed)


def _demos_of_run(folder: Path, count: int, passed: Callable[[PayloadLost], None] | None) -> Iterator[Demo]:
    segments = folder / "segments"
    with reading(folder) as database:
        # A live run may add more meanwhile: as many as the header says are read.
        for row in queries.demo_episodes(database, count):
            refs = queries.steps_of(database, row["token"])
            reply = bytes(row["reply"])
            work = msgspec.msgpack.decode(reply, type=Reservation) if reply else None
            try:
                steps = [portable(ref, segments) for ref in refs]
            except PayloadLost as error:
                if passed is None:
                    raise
                passed(error)
                continue
            yield Demo(
                task=row["task"],
                route=work.route if work else "",
                member=work.member if work else "",
                reason=row["reason"],
                wall_s=row["wall_s"],
                busy_s=row["busy_s"],
                steps=steps,
            )


def portable(step: StepRef, segments: Path) -> DemoStep:
    """A stored step by itself, as `DemoStep.of` has it. Raises StoreError."""
    try:
        payload = msgspec.msgpack.decode(read_blob(segments, step.blob), type=StepPayload)
    except msgspec.DecodeError as error:
        raise PayloadLost(f"{step.blob.segment} at {step.blob.offset} holds no step: {error}") from error
    return DemoStep.of(payload, well_formed=step.well_formed)
