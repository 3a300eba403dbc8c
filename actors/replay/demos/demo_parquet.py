"""Demonstrations as Parquet: a row per step, for readers of tables.

Invariant: nothing of a step is lost or rounded on the way out and back. A value without a column is refused. The row
groups, the order of rows and the types and packing of columns do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from actors.replay.demos.format import Demo, DemoStep, RecordingHeader
from actors.replay.messages import StepPayload
from runtime.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

KEY = b"computerrl"  # of the metadata that holds the header
GROUP = 512  # demonstrations per row group
ROWS = 2048  # in memory at once
MAY_LACK = frozenset(("action", "refusal", "result"))  # columns that may be null
_OF_DEMO = ("task", "route", "member", "reason", "wall_s", "busy_s")
_OF_STEP = ("prompt_ids", "response_ids", "temperature", "observation", "response", "action", "refusal", "result", "by")
_TIMES = ("observe_ms", "generate_ms", "act_ms")


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
    """What `write_parquet` wrote, however another writer has cut, ordered, typed or compressed it since.

    Raises StoreError, also while iterating; rows are counted from 0 in the file's own order.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_schema(path)
        text = (found.metadata or {}).get(KEY)
        if text is None:
            raise StoreError(
                f"no demonstrations in {path}: its metadata has no {KEY.decode()}, which says what they were made with"
            )
        header = msgspec.json.decode(text, type=RecordingHeader)
    except (OSError, pa.ArrowException, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"no demonstrations in {path}: {_line(error)}") from error
    schema = _schema(header)
    for name in schema.names:
        if (times := found.names.count(name)) != 1:
            raise StoreError(f"no demonstrations in {path}: it has {times or 'no'} column{'s' * bool(times)} {name}")
    return header, _demos(path, schema)


def _demos(path: Path, schema: pa.Schema) -> Iterator[Demo]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            keys = _cast(path, file.read(columns=["demo", "step"]), schema)
            order = _order(path, keys["demo"].to_pylist(), keys["step"].to_pylist())
            for _, rows in groupby(_rows(path, file, schema, order), key=lambda row: row[1]["demo"]):
                yield _demo(path, list(rows))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _order(path: Path, demos: list[int], steps: list[int]) -> list[int]:
    """The rows by demonstration and step. Raises StoreError unless each one's steps are 0 to n-1, each once."""
    order = sorted(range(len(demos)), key=lambda row: (demos[row], steps[row]))
    before, wanted = None, 0
    for row in order:
        wanted = wanted + 1 if demos[row] == before else 0
        if steps[row] != wanted:
            twice = demos[row] == before and steps[row] == wanted - 1
            said = f"step {steps[row]} a second time" if twice else f"step {steps[row]} in place of {wanted}"
            raise StoreError(f"{path}: row {row}, column step: demonstration {demos[row]} has {said}")
        before = demos[row]
    return order


def _rows(
    path: Path, file: pq.ParquetFile, schema: pa.Schema, order: list[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and values of each row in `order`; a file that lies in it is never in memory whole."""
    import pyarrow as pa

    if all(row == place for place, row in enumerate(order)):
        at = 0
        for batch in file.iter_batches(ROWS, columns=schema.names):
            table = _cast(path, pa.Table.from_batches([batch]), schema, range(at, at + batch.num_rows))
            yield from enumerate(table.to_pylist(), at)
            at += batch.num_rows
        return
    whole = file.read(columns=schema.names)
    for at in range(0, len(order), ROWS):
        rows = order[at : at + ROWS]
        yield from zip(rows, _cast(path, whole.take(rows), schema, rows).to_pylist(), strict=True)


def _cast(path: Path, table: pa.Table, schema: pa.Schema, rows: Sequence[int] | None = None) -> pa.Table:
    """The columns of `schema` in its types, or StoreError with the first row that can't be put so.

    `rows` are the numbers of the table's rows, from 0 where it is None. Only `MAY_LACK` may be null.
    """
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column, kind = table[name], schema.field(name).type
        try:
            columns[name] = column.cast(kind)
        except pa.ArrowException as error:
            bad, cause = _first_bad(column, kind, error)
            raise StoreError(f"{path}: row {rows[bad] if rows else bad}, column {name}: {cause}") from error
        if name not in MAY_LACK and columns[name].null_count:
            bad = columns[name].is_null().index(True).as_py()
            raise StoreError(f"{path}: row {rows[bad] if rows else bad}, column {name}: it is null")
    return pa.table(columns)


def _first_bad(column: pa.ChunkedArray, kind: pa.DataType, error: Exception) -> tuple[int, str]:
    import pyarrow as pa

    for row in range(len(column)):
        try:
            column.take([row]).cast(kind)  # a slice of lists would cast all of their values
        except pa.ArrowException as alone:
            return row, _line(alone)
    return 0, _line(error)


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
