"""Demonstrations straight from a run's folder, while it runs or after.

Invariant: the ledger is opened read-only, so looking at a run changes nothing and waits for no writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from actors.replay import observed
from actors.replay.database import queries
from actors.replay.database.ledger_file import reading
from actors.replay.demos.format import FORMAT, Demo, DemoStep, RecordingHeader, TaskAttempts
from actors.replay.messages import Reservation, StepPayload, StepRef
from runtime.errors import PayloadLost
from runtime.segments import digest_of, read_blob


def read_run(
    folder: Path, passed: Callable[[PayloadLost], None] | None = None
) -> tuple[RecordingHeader, Iterator[Demo]]:
    """As `demo_files.read`. Raises StoreError when there is no ledger of this build's form.

    A demonstration that can't be read is passed by and reported to `passed`; without that it raises PayloadLost.
    """
    with reading(folder) as database:
        meta = queries.meta(database)
        count = queries.demos_stored(database)
        tried = [
            TaskAttempts(task=row[0], tries=row[1], wins=row[2], mixed_tries=row[3], mixed_wins=row[4])
            for row in queries.demo_tasks_tried(database)
        ]
        observations = observed.of_demos(database)
    made_with = {key: meta.get(key, "") for key in ("tokenizer", "form", "actions")}
    header = RecordingHeader(format=FORMAT, demos=count, tasks=tried, observations=observations, **made_with)
    return header, _demos(folder, count, passed)


def counts(folder: Path) -> dict[str, int]:
    """Successful demonstrations by `family/route`, or `family/member` of a pool. Raises StoreError."""
    with reading(folder) as database:
        return queries.demos_by_stratum(database)


def _demos(folder: Path, count: int, passed: Callable[[PayloadLost], None] | None) -> Iterator[Demo]:
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
    """A stored step by itself: without its screenshot, which lies in its own run's segments, and without what a draw
    of the policy was worth to that run's weights. Raises StoreError.
    """
    try:
        payload = msgspec.msgpack.decode(read_blob(segments, step.blob), type=StepPayload)
    except msgspec.DecodeError as error:
        raise PayloadLost(f"{step.blob.segment} at {step.blob.offset} holds no step: {error}") from error
    alone = msgspec.structs.replace(payload, screenshot=None, logprobs=[], spans=[])
    digest = digest_of(msgspec.msgpack.encode(alone)).hex()
    return DemoStep(digest=digest, well_formed=step.well_formed, payload=alone)
