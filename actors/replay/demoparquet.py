"""Demonstrations as Parquet: a row per step, for whoever reads tables.

Invariant: nothing of a step is lost or rounded on the way out and back; what no column stands for is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from actors.replay.demofiles import Demo, DemoStep, Header
from runtime.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"computerrl"  # of the metadata that holds the header
GROUP = 512  # demonstrations per row group: what is in memory at once
_OF_DEMO = ("task", "route", "member", "reason", "wall_s", "busy_s")
_OF_STEP = ("prompt_ids", "response_ids", "temperature", "observation", "response", "action", "refusal", "result", "by")
_TIMES = ("observe_ms", "generate_ms", "act_ms")


def _schema(header: Header) -> pa.Schema:
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


def write_parquet(path: Path, header: Header, demos: Iterable[Demo]) -> None:
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


def read_parquet(path: Path) -> tuple[Header, Iterator[Demo]]:
    """What `write_parquet` wrote. Raises StoreError, also while iterating."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        text = (schema.metadata or {}).get(KEY)
        if text is None:
            raise StoreError(f"no demonstrations in {path}: its metadata has no {KEY.decode()}")
        header = msgspec.json.decode(text, type=Header)
    except (OSError, pa.ArrowException, msgspec.DecodeError) as error:
        raise StoreError(f"no demonstrations in {path}: {str(error).splitlines()[0]}") from error
    missing = [name for name in _schema(header).names if name not in schema.names]
    if missing:
        raise StoreError(f"no demonstrations in {path}: it has no column {missing[0]}")
    return header, _demos(path)


def _demos(path: Path) -> Iterator[Demo]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for _, rows in groupby(file.read_row_group(group).to_pylist(), key=lambda row: row["demo"]):
                    yield _demo(list(rows))
    except (OSError, pa.ArrowException, msgspec.ValidationError) as error:
        raise StoreError(f"{path}: {str(error).splitlines()[0]}") from error


def _demo(rows: list[dict[str, Any]]) -> Demo:
    steps = [
        {
            "digest": row["digest"],
            "well_formed": row["well_formed"],
            "payload": {name: row[name] for name in (*_OF_STEP, *_TIMES)}
            | {"logprobs": [], "spans": [], "screenshot": None},
        }
        for row in rows
    ]
    return msgspec.convert({name: rows[0][name] for name in _OF_DEMO} | {"steps": steps}, Demo)
