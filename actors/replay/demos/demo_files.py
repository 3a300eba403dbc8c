"""Recordings of demonstrations: JSON lines, Parquet, or the run folder they were made in.

Invariant: whatever it is read from, a demonstration comes out as it was recorded: each step's digest is checked, a
file that was cut short is refused, and a file appears under its name only when it is whole.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from actors.replay import observed
from actors.replay.messages import StepPayload
from apis.actions.reasoning import spoken
from runtime.errors import PayloadLost, StoreError
from runtime.storage.segments import digest_of

FORMAT = "computerrl-demos-3"


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a task was tried: by members of the pool, and with each step by a random one."""

    task: str
    tries: int
    wins: int
    mixed_tries: int = 0
    mixed_wins: int = 0


RENAMED_FORMS = {"paper": "published"}  # as recordings of before name them


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a recording says of itself: the first line, or Parquet's metadata."""

    format: str
    tokenizer: str  # fingerprint of what made the token ids, "" when unknown
    form: str  # of prompts and answers: compact or published, "" when unknown
    actions: str = ""  # that the demonstrators had: both, gui or api, "" when unknown
    observations: observed.Versions = observed.FIRST  # versions that its desktops showed, smallest first
    demos: int
    tasks: list[Tried] = []  # all that were tried, solved or not; [] where tasks have no strata

    def __post_init__(self) -> None:
        if self.form in RENAMED_FORMS:
            msgspec.structs.force_setattr(self, "form", RENAMED_FORMS[self.form])


class DemoStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One step. `digest` is blake2b-128 of the payload as MessagePack, hex."""

    digest: str
    well_formed: bool
    payload: StepPayload


class Demo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One successful demonstration: one line of a JSON lines file."""

    task: str
    route: str  # "" where members of a pool demonstrate
    member: str = ""  # who made it: a member's name, "mixed" for several, "policy"; "" goes by the route
    reason: str
    wall_s: float
    busy_s: float
    steps: list[DemoStep]

    @property
    def digest(self) -> str:
        """blake2b-128 of task, route, member and the steps' digests, hex: what makes it the same one elsewhere."""
        text = "\n".join([self.task, self.route, self.member, *(step.digest for step in self.steps)])
        return digest_of(text.encode()).hex()


def kind_of(path: Path) -> str:
    """`run`, `parquet` or `jsonl`. Raises StoreError for a name that is none of them."""
    if path.is_dir():
        return "run"
    kind = path.suffix.removeprefix(".")
    if kind not in ("jsonl", "parquet"):
        raise StoreError(f"{path}: a recording is a run's folder, a .jsonl or a .parquet file")
    return kind


def read(path: Path, passed: Callable[[PayloadLost], None] | None = None) -> tuple[Header, Iterator[Demo]]:
    """What a recording says of itself, and its demonstrations one by one. Raises StoreError, also while iterating.

    Of a run's folder, what can't be read is told to `passed` instead; a file is taken whole or not at all.
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


def _checked(path: Path, header: Header, demos: Iterable[Demo]) -> Iterator[Demo]:
    count = 0
    for demo in demos:
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


def _read_lines(path: Path) -> tuple[Header, Iterator[Demo]]:
    try:
        with path.open("rb") as file:
            header = _header(path, file.readline())
    except OSError as error:
        raise StoreError(f"no demonstrations in {path}: {error.strerror}") from error
    return header, _lines(path)


def _header(path: Path, text: bytes) -> Header:
    try:
        name = msgspec.json.decode(text, type=dict).get("format")
        if name != FORMAT:
            raise StoreError(f"{path} has format {name!r}, this build reads {FORMAT!r}: export it again")
        return msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"no demonstrations in {path}: {error}") from error


def _lines(path: Path) -> Iterator[Demo]:
    decoder = msgspec.json.Decoder(Demo)
    with path.open("rb") as file:
        file.readline()
        for number, line in enumerate(file, 2):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StoreError(f"{path}, line {number}: {error}") from error


def write(path: Path, header: Header, demos: Iterable[Demo]) -> None:
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
