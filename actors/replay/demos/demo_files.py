"""Recordings of demonstrations: JSON lines, Parquet, or the run folder they were made in.

Invariant: a demonstration comes out of every format as it was recorded. Each step's digest is checked, and a file that
was cut short is refused. A file appears under its name only when it is whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from actors.replay.demos.format import FORMAT, Demo, RecordingHeader
from actors.replay.messages import StepPayload
from apis.actions.reasoning import spoken
from runtime import disk
from runtime.errors import PayloadLost, StoreError
from runtime.segments import digest_of

MOST_BYTES = 32 << 20  # of one demonstration; one of 50 steps with prompts of 30,000 tokens takes 12


def kind_of(path: Path) -> str:
    """`run`, `parquet` or `jsonl`. Raises StoreError for a name that is none of them."""
    if path.is_dir():
        return "run"
    kind = path.suffix.removeprefix(".")
    if kind not in ("jsonl", "parquet"):
        raise StoreError(f"{path}: a recording is a run's folder, a .jsonl or a .parquet file")
    return kind


def read(path: Path, passed: Callable[[PayloadLost], None] | None = None) -> tuple[RecordingHeader, Iterator[Demo]]:
    """What a recording says of itself, and its demonstrations one by one. Raises StoreError, also while iterating.

    Of a run's folder, what can't be read is reported to `passed` instead; a file is taken whole or not at all.
    """
    kind = kind_of(path)
    if kind == "run":
        from actors.replay.demos.demo_run import read_run

        return read_run(path, passed)
    if kind == "parquet":
        from actors.replay.demos.demo_parquet import read_parquet

        header, found = read_parquet(path)
    else:
        header, found = _read_lines(path)
    if header.format != FORMAT:
        raise StoreError(f"{path} has format {header.format!r}, this build reads {FORMAT!r}: export it again")
    return header, _checked(path, header, found)


def _checked(path: Path, header: RecordingHeader, demos: Iterable[Demo]) -> Iterator[Demo]:
    count = 0
    for demo in demos:
        if count == header.demos:
            raise StoreError(f"{path} holds more than the {count} demonstrations that it says it holds")
        for number, step in enumerate(demo.steps):
            if digest_of(msgspec.msgpack.encode(step.payload)).hex() != step.digest:
                raise StoreError(f"{path}: step {number} of {demo.task} is not what its digest {step.digest} says")
        count += 1
        yield demo
    if count != header.demos:
        raise StoreError(f"{path} holds {count} of the {header.demos} demonstrations that it says it holds")


def unfit(demo: Demo) -> str:
    """Why nothing could be learned from it; "" where it can."""
    if not demo.steps:
        return "it has no steps"
    if not any(step.well_formed for step in demo.steps):
        return "no step of it is well-formed"
    for number, step in enumerate(demo.steps):
        if step.well_formed and not acts(step.payload):
            return f"step {number} did what its answer only thought of: {str(step.payload.action)[:80]}"
        for name in ("prompt_ids", "response_ids"):
            ids = getattr(step.payload, name)
            if not ids or min(ids) < 0:
                return f"{name} of step {number} are {'empty' if not ids else 'below 0'}"
    if not (math.isfinite(demo.wall_s) and math.isfinite(demo.busy_s)):
        return "its times are no numbers"
    return ""


def acts(step: StepPayload) -> bool:
    """Whether the action that was carried out stands outside the answer's reasoning, as far as its name tells."""
    said, thought, unclosed = spoken(step.response)
    if not thought and not unclosed:
        return True
    try:
        name = msgspec.json.decode(step.action or "", type=_Named)
    except msgspec.DecodeError:
        return False
    names = (f".{name.name or name.function}(", *("WAIT", "DONE", "FAIL") * (name.function in ("wait", "exit")))
    return not unclosed and any(one in said for one in names)


class _Named(msgspec.Struct, frozen=True):
    """What of an action as JSON says what it is."""

    function: str
    name: str = ""  # of an application's function


def _read_lines(path: Path) -> tuple[RecordingHeader, Iterator[Demo]]:
    try:
        with disk.opened(path) as file:
            header = _header(path, next(disk.lines(file, MOST_BYTES), b""))
    except OSError as error:
        raise StoreError(f"no demonstrations in {path}: {error.strerror}") from error
    return header, _lines(path)


def _header(path: Path, text: bytes) -> RecordingHeader:
    try:
        name = msgspec.json.decode(text, type=dict).get("format")
        if name != FORMAT:
            raise StoreError(f"{path} has format {name!r}, this build reads {FORMAT!r}: export it again")
        return msgspec.json.decode(text, type=RecordingHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"no demonstrations in {path}: {error}") from error


def _lines(path: Path) -> Iterator[Demo]:
    decoder = msgspec.json.Decoder(Demo)
    number = 1
    try:
        with disk.opened(path) as file:
            for number, line in enumerate(disk.lines(file, MOST_BYTES), 1):
                if number > 1:
                    yield decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}, line {number}: {error}") from error
    except OSError as error:
        raise StoreError(f"{path}, line {number + 1}: {error.strerror}") from error


def write(path: Path, header: RecordingHeader, demos: Iterable[Demo]) -> None:
    """Write a .jsonl or .parquet file, replacing what was there once it is whole. Raises StoreError."""
    kind = kind_of(path)
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "parquet":
            from actors.replay.demos.demo_parquet import write_parquet

            write_parquet(scratch, header, demos)
        elif kind == "jsonl":
            with scratch.open("wb") as file:
                file.write(msgspec.json.encode(header) + b"\n")
                file.writelines(msgspec.json.encode(demo) + b"\n" for demo in demos)
        else:
            raise StoreError(f"{path} is a folder")
        os.replace(scratch, path)
    except OSError as error:
        raise StoreError(f"can't write demonstrations to {path}: {error}") from error
