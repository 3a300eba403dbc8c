"""The format of a recording of demonstrations: what it holds, and its rows in Parquet, one a step.

Invariant: fields have the names that existing files hold; a field is only ever added, with a default. Nothing of a step
is lost or rounded on the way out and back, and a value without a column is refused. Rows come by demonstration and
step. Their groups and the types and packing of columns do not matter, up to the bounds below. Bounds are checked before
anything of that size is unpacked, for a file of a few kilobytes may claim gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from actors.replay.database import queries
from actors.replay.messages import StepPayload
from runtime import disk
from runtime.errors import StoreError
from runtime.segments import digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = "computerrl-demos-3"
KEY = b"computerrl"  # of the metadata that holds the header
GROUP = 512  # demonstrations per row group
ROWS = 2048  # in memory at once
MOST_ROWS = 4_000_000
MOST_STEPS = 10_000  # of a demonstration
MOST_DEMO = 32 << 20  # bytes of one, and of what is unpacked at once
MOST_CHUNK, OF_ROW = 512 << 20, 128 << 10  # bytes of a column in a row group, and for each of its rows beyond MOST_DEMO
OF_ID = 8  # bytes, and more while it is an object
MAY_LACK = frozenset(("action", "refusal", "result"))  # columns that may be null
_OF_DEMO = ("task", "route", "member", "reason", "wall_s", "busy_s")
_OF_STEP = ("prompt_ids", "response_ids", "temperature", "observation", "response", "action", "refusal", "result", "by")
_TIMES = ("observe_ms", "generate_ms", "act_ms")


class TaskAttempts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often a task was tried: by members of the pool, and with each step by a random one."""

    task: str
    tries: int
    wins: int
    mixed_tries: int = 0
    mixed_wins: int = 0


class RecordingHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a recording holds and was made with, as Parquet's metadata."""

    format: str
    tokenizer: str  # fingerprint of what made the token ids, "" when unknown
    form: str  # of prompts and answers: compact or published, "" when unknown
    actions: str = ""  # that the demonstrators had: both, gui or api, "" when unknown
    observations: queries.Observations = queries.FIRST_OBSERVATION  # versions that its desktops showed, smallest first
    demos: int
    tasks: list[TaskAttempts] = []  # all that were tried, solved or not; [] where tasks have no strata


def digest_of_step(payload: StepPayload) -> str:
    """blake2b-128 of the payload as MessagePack, hex, without pictures, which no recording holds."""
    fields = msgspec.structs.asdict(payload)
    del fields["pictures"]
    return digest_of(msgspec.msgpack.encode(fields)).hex()


class DemoStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One step and its `digest_of_step`."""

    digest: str
    well_formed: bool
    payload: StepPayload

    @classmethod
    def of(cls, payload: StepPayload, *, well_formed: bool) -> Self:
        """A step without its screenshot, which is a file of its run, and without what its run's weights drew.

        Raises StoreError for a step that showed the model a picture.
        """
        if payload.pictures:
            raise StoreError("a step shows the model a picture (prompt.observation), and a recording holds texts alone")
        alone = msgspec.structs.replace(payload, screenshot=None, logprobs=[], spans=[])
        return cls(digest=digest_of_step(alone), well_formed=well_formed, payload=alone)


class Demo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One successful demonstration."""

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


def _schema(header: RecordingHeader) -> pa.Schema:
    import pyarrow as pa

    ids, text, real = pa.list_(pa.int32()), pa.string(), pa.float64()
    columns = [
        ("demo", pa.int64()),
        ("step", pa.int32()),
        *((name, text if name in ("task", "route", "member", "reason") else real) for name in _OF_DEMO),
        ("digest", text),
        ("well_formed", pa.bool_()),
        *((name, {"prompt_ids": ids, "response_ids": ids, "temperature": real}.get(name, text)) for name in _OF_STEP),
        *((name, real) for name in _TIMES),
    ]
    return pa.schema(columns, metadata={KEY: msgspec.json.encode(header)})


def write_parquet(path: Path, header: RecordingHeader, demos: Iterable[Demo]) -> None:
    """Write `demos`. Raises StoreError for a step that a policy took, OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(header)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for number, demo in enumerate(demos):
            rows += [_row(number, place, demo, step) for place, step in enumerate(demo.steps)]
            if (number + 1) % GROUP == 0:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _row(number: int, place: int, demo: Demo, step: DemoStep) -> dict[str, Any]:
    payload = step.payload
    if payload.logprobs or payload.spans or payload.screenshot is not None:
        raise StoreError(f"step {place} of {demo.task} is a policy's own: no demonstration")
    row = {name: getattr(demo, name) for name in _OF_DEMO}
    row |= {name: getattr(payload, name) for name in (*_OF_STEP, *_TIMES)}
    return {**row, "demo": number, "step": place, "digest": step.digest, "well_formed": step.well_formed}


def read_parquet(path: Path) -> tuple[RecordingHeader, Iterator[Demo]]:
    """What `write_parquet` wrote, however another writer has cut, typed or compressed it since.

    Raises StoreError, also while iterating; rows are counted from 0 in the file's own order.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        disk.opened(path).close()
        written = pq.read_schema(path)
        text = (written.metadata or {}).get(KEY)
        if text is None:
            raise StoreError(
                f"no demonstrations in {path}: its metadata has no {KEY.decode()}, which says what they were made with"
            )
        header = msgspec.json.decode(text, type=RecordingHeader)
    except (OSError, pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"no demonstrations in {path}: {_line(error)}") from error
    schema = _schema(header)
    for name in schema.names:
        if (times := written.names.count(name)) != 1:
            raise StoreError(f"no demonstrations in {path}: it has {times or 'no'} column{'s' * bool(times)} {name}")
    return header, _demos(path, schema)


def _demos(path: Path, schema: pa.Schema) -> Iterator[Demo]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False, read_dictionary=_texts(schema)) as file:
            _refuse_huge(path, file.metadata)
            for _, rows in groupby(_rows(path, file, schema), key=lambda row: row[1]["demo"]):
                yield _demo(path, _collected(path, rows))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {_line(error)}") from error


def _texts(schema: pa.Schema) -> list[str]:
    """The columns of text. A text that comes a million times is read once."""
    import pyarrow as pa

    return [field.name for field in schema if pa.types.is_string(field.type)]


def _refuse_huge(path: Path, metadata: pq.FileMetaData) -> None:
    """Raise StoreError where the file has, by its own account, more rows or larger columns than are read."""
    if metadata.num_rows > MOST_ROWS:
        raise StoreError(f"{path} has {metadata.num_rows} rows: at most {MOST_ROWS} are read")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            size = max(chunk.total_uncompressed_size, chunk.num_values * OF_ID)
            if not 0 <= size <= min(MOST_CHUNK, MOST_DEMO + group.num_rows * OF_ROW):
                raise StoreError(
                    f"{path}: row group {number}, column {chunk.path_in_schema.partition('.')[0]}: it has {size} bytes"
                    f" in {group.num_rows} rows, which is more than is read"
                )


def _collected(path: Path, rows: Iterable[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a demonstration. Raises StoreError for one that is too large."""
    collected, size = [], 0
    for number, row in rows:
        sized = [value for value in row.values() if isinstance(value, str | list)]
        size += sum(len(value) * (OF_ID if isinstance(value, list) else 1) for value in sized)
        if size > MOST_DEMO:
            raise StoreError(f"{path}: row {number}: demonstration {row['demo']} has more than {MOST_DEMO} bytes")
        collected.append((number, row))
    return collected


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _rows(path: Path, file: pq.ParquetFile, schema: pa.Schema) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and values of each row. Raises StoreError unless they come by demonstration and step, each once."""
    at, demo, step = 0, None, -1
    for batch in file.iter_batches(ROWS, columns=schema.names):
        columns = _cast(path, batch, schema, at)
        for number in range(at, at + batch.num_rows):
            row = {name: column[number - at].as_py() for name, column in columns.items()}
            if demo is not None and row["demo"] < demo:
                cause = f"{row['demo']} comes after {demo}: sort the rows by demo and step"
                raise StoreError(f"{path}: row {number}, column demo: {cause}")
            due = step + 1 if row["demo"] == demo else 0
            if row["step"] != due:
                steps = f"step {row['step']} in place of {due}"
                raise StoreError(f"{path}: row {number}, column step: demonstration {row['demo']} has {steps}")
            if due >= MOST_STEPS:
                raise StoreError(f"{path}: demonstration {row['demo']} has more than {MOST_STEPS} steps")
            demo, step = row["demo"], due
            yield number, row
        at += batch.num_rows


def _cast(path: Path, batch: pa.RecordBatch, schema: pa.Schema, at: int) -> dict[str, pa.Array]:
    """The columns of `schema`, numbers and lists in its types, texts as they are packed. Raises StoreError.

    `at` is the number of the batch's first row. Only `MAY_LACK` may be null.
    """
    import pyarrow as pa

    columns = {}
    for name in schema.names:
        column, kind = batch.column(name), schema.field(name).type
        try:
            packed = pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type)
            columns[name] = column if packed else column.cast(kind)
        except pa.ArrowException as error:
            raise StoreError(f"{path}: row {at} or later, column {name}: {_line(error)}") from error
        if name not in MAY_LACK and columns[name].null_count:
            bad = columns[name].is_null().index(True).as_py()
            raise StoreError(f"{path}: row {at + bad}, column {name}: it is null")
    return columns


def _demo(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> Demo:
    first = rows[0][1]
    for number, row in rows:
        other = next((name for name in _OF_DEMO if repr(row[name]) != repr(first[name])), None)
        if other is not None:
            values = f"{row[other]!r:.60}, its first row says {first[other]!r:.60}"
            raise StoreError(f"{path}: row {number}, column {other}: demonstration {row['demo']} has {values}")
    return Demo(**{name: first[name] for name in _OF_DEMO}, steps=[_step(path, number, row) for number, row in rows])


def _step(path: Path, number: int, row: dict[str, Any]) -> DemoStep:
    payload = {name: row[name] for name in (*_OF_STEP, *_TIMES)} | {"logprobs": [], "spans": [], "screenshot": None}
    try:
        return DemoStep(
            digest=row["digest"], well_formed=row["well_formed"], payload=msgspec.convert(payload, StepPayload)
        )
    except msgspec.ValidationError as error:
        cause, _, column = str(error).partition(" - at `$.")
        raise StoreError(f"{path}: row {number}, column {column.rstrip('`') or '?'}: {cause}") from error
