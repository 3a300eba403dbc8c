"""Demonstrations shared between runs: a JSON-lines file and a file of payloads beside it.

Invariant: what is imported is byte for byte what was exported (digests are checked) and was made with the same
tokenizer; a file is imported once, or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from actors.replay import events
from actors.replay.book import Book
from actors.replay.memory import load_steps, store_steps
from actors.replay.messages import DemosMoved, Lane, StepPayload, StepRef
from runtime.errors import LedgerError, StoreError
from runtime.segments import MAX_BLOB_BYTES, SegmentStore, digest_of, read_blob

FORMAT = "computerrl-demos-1"


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First line. `tokenizer` is the fingerprint of what made the token ids, "" when unknown."""

    format: str
    tokenizer: str


class StoredStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a payload lies in the blobs file (bytes), and what the ledger knows of it."""

    at: int
    size: int
    digest: str
    prompt_tokens: int
    response_tokens: int
    well_formed: bool


class StoredDemo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One successful demonstration: one line."""

    task: str
    reason: str
    wall_s: float
    busy_s: float
    steps: list[StoredStep]


def blobs_file(path: Path) -> Path:
    """The payloads' file beside `path`."""
    return path.with_suffix(".blobs")


def import_demos(book: Book, path: Path, segments: SegmentStore) -> DemosMoved:
    """Add the file's demonstrations until `demos.count` are stored; again adds nothing.

    Raises StoreError when the files are missing, torn or of another form, LedgerError for another tokenizer.
    """
    try:
        text, blobs = path.read_bytes(), blobs_file(path).read_bytes()
        lines = text.splitlines()
        header = msgspec.json.decode(lines[0], type=Header)
        demos = [msgspec.json.decode(line, type=StoredDemo) for line in lines[1:]]
    except (OSError, IndexError, msgspec.DecodeError) as error:
        raise StoreError(f"no demonstrations in {path}: {error}") from error
    if header.format != FORMAT:
        raise StoreError(f"{path} has format {header.format!r}, this build reads {FORMAT!r}")
    ours = book.settings.tokenizer
    if header.tokenizer and ours and header.tokenizer != ours:
        raise LedgerError(f"{path} was recorded with tokenizer {header.tokenizer}, the model has {ours}: record anew")
    digest = digest_of(text).hex()
    if book.row("SELECT 1 FROM imports WHERE digest = ?", digest) is not None:
        return DemosMoved(demos=0)
    wanted = demos[: max(0, book.settings.demos.count - book.counter("demos"))]
    for number, demo in enumerate(wanted):
        _add(book, demo, [_stored(step, blobs, path, segments) for step in demo.steps], f"{digest}/{number}")
    segments.flush()
    book.execute("INSERT INTO imports VALUES(?, ?)", digest, len(wanted))
    book.emit(events.DEMOS_MOVED, direction="in", path=str(path), demos=len(wanted))
    return DemosMoved(demos=len(wanted))


def _stored(step: StoredStep, blobs: bytes, path: Path, segments: SegmentStore) -> StepRef:
    payload = blobs[step.at : step.at + step.size]
    if len(payload) != step.size or digest_of(payload).hex() != step.digest:
        raise StoreError(f"{blobs_file(path)} at {step.at} does not hold {step.digest}")
    try:
        content = msgspec.msgpack.decode(payload, type=StepPayload)
    except msgspec.DecodeError as error:
        raise StoreError(f"{blobs_file(path)} at {step.at} holds no step: {error}") from error
    if (len(content.prompt_ids), len(content.response_ids)) != (step.prompt_tokens, step.response_tokens):
        raise StoreError(f"{path} and its blobs disagree about the step at {step.at}")
    return StepRef(
        blob=segments.append(payload),
        prompt_tokens=step.prompt_tokens,
        response_tokens=step.response_tokens,
        well_formed=step.well_formed,
        oldest=None,
    )


def _add(book: Book, demo: StoredDemo, steps: list[StepRef], name: str) -> None:
    stay = book.stay().idx
    token = book.execute(
        "INSERT INTO reservations(request_id, seat, lane, task, stay, slot, state, wall, expires, reply) "
        "VALUES(?, 'import', ?, ?, ?, 0, 'committed', ?, ?, x'')",
        f"import/{name}", Lane.DEMO, demo.task, stay, book.now, book.now,
    ).lastrowid  # fmt: skip
    assert token is not None
    book.execute(
        "INSERT INTO episodes(token, lane, task, stay, success, feasible, reason, wall_s, busy_s, ended_step, place) "
        "VALUES(?, ?, ?, ?, 1, 1, ?, ?, ?, ?, 0)",
        token, Lane.DEMO, demo.task, stay, demo.reason, demo.wall_s, demo.busy_s, book.trained.step,
    )  # fmt: skip
    store_steps(book, token, steps)
    for counter in ("demos", f"episodes:{Lane.DEMO}"):
        book.count(counter)


def export_demos(book: Book, path: Path, folder: Path) -> DemosMoved:
    """Write every successful demonstration to `path` and its blobs file, replacing both. Raises StoreError."""
    rows = book.rows("SELECT * FROM episodes WHERE lane = ? AND success = 1 ORDER BY seq", Lane.DEMO)
    scratch, scratch_blobs = path.with_suffix(".part"), path.with_suffix(".blobs.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as text, scratch_blobs.open("wb") as blobs:
            text.write(msgspec.json.encode(Header(format=FORMAT, tokenizer=book.settings.tokenizer)) + b"\n")
            for row in rows:
                steps = []
                for step in load_steps(book, row["token"]):
                    payload = _portable(read_blob(folder, step.blob))
                    digest = digest_of(payload).hex()
                    steps.append(
                        StoredStep(
                            blobs.tell(),
                            len(payload),
                            digest,
                            step.prompt_tokens,
                            step.response_tokens,
                            step.well_formed,
                        )
                    )
                    blobs.write(payload)
                demo = StoredDemo(row["task"], row["reason"], row["wall_s"], row["busy_s"], steps)
                text.write(msgspec.json.encode(demo) + b"\n")
        os.replace(scratch_blobs, blobs_file(path))
        os.replace(scratch, path)
    except OSError as error:
        raise StoreError(f"can't write demonstrations to {path}: {error}") from error
    book.emit(events.DEMOS_MOVED, direction="out", path=str(path), demos=len(rows))
    return DemosMoved(demos=len(rows))


def _portable(payload: bytes) -> bytes:
    """The payload without its screenshot, which lies in this run's segments."""
    step = msgspec.structs.replace(msgspec.msgpack.decode(payload, type=StepPayload), screenshot=None)
    encoded = msgspec.msgpack.encode(step)
    if len(encoded) > MAX_BLOB_BYTES:
        raise StoreError(f"a demonstration's step has {len(encoded)} bytes; {MAX_BLOB_BYTES} is the most")
    return encoded
