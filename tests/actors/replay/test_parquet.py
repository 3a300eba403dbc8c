"""Recordings in Parquet, written again by other writers: cut, retyped, packed, damaged."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader, digest_of_step
from actors.replay.messages import PictureRef
from runtime.errors import StoreError
from runtime.messaging.message import BlobRef
from tests.actors.replay.ledger_tools import payload


def step(text: str, refusal: str | None) -> DemoStep:
    content = payload(observation=text, refusal=refusal, observe_ms=1 / 3)
    return DemoStep(digest=digest_of_step(content), well_formed=True, payload=content)


MADE = [
    Demo(
        task=f"a/train/{n}",
        route="gui",
        reason="verified",
        wall_s=n / 3,
        busy_s=0.1,
        steps=[step(f"{n}.{k} \u2028🙂", refusal=None if k % 2 else "no") for k in range(1 + n % 4)],
    )
    for n in range(9)
]
HEADER = RecordingHeader(format=demo_format.FORMAT, tokenizer="t", form="compact", demos=len(MADE))


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    path = tmp_path / "whole.parquet"
    demo_files.write(path, HEADER, MADE)
    return pq.read_table(path)


def retyped(table: pa.Table, kinds: dict[pa.DataType, pa.DataType]) -> pa.Table:
    fields = [field.with_type(kinds.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


WRITERS: dict[str, Callable[[pa.Table], tuple[pa.Table, dict[str, Any]]]] = {
    "small row groups": lambda table: (table, {"row_group_size": 2}),
    "large types": lambda table: (
        retyped(table, {pa.string(): pa.large_string(), pa.list_(pa.int32()): pa.large_list(pa.int64())}), {},
    ),
    "bytes": lambda table: (retyped(table, {pa.string(): pa.binary(), pa.int64(): pa.int16()}), {}),
    "dictionaries": lambda table: (
        retyped(table, {pa.string(): pa.dictionary(pa.int32(), pa.string())}), {"compression": "gzip"},
    ),
    "snappy, other pages": lambda table: (
        table, {"compression": "snappy", "use_dictionary": False, "data_page_version": "2.0"},
    ),
    "more columns": lambda table: (table.append_column("__index_level_0__", pc.add(table["demo"], 5)), {}),
    "columns in another order": lambda table: (table.select(sorted(table.column_names)), {"compression": "none"}),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
def test_what_another_writer_made_of_it_is_the_same(table: pa.Table, tmp_path: Path, writer: str) -> None:
    written, more = WRITERS[writer](table)
    pq.write_table(written, tmp_path / "other.parquet", **more)
    header, found = demo_files.read(tmp_path / "other.parquet")
    assert header == HEADER
    assert list(found) == MADE


def test_a_step_that_showed_a_picture_is_in_no_recording() -> None:
    blob = BlobRef(segment="s-000000.seg", offset=24, size=1, digest="")
    seen = PictureRef(blob=blob, digest="d", width=1, height=1, at=1)
    with pytest.raises(StoreError, match=r"shows the model a picture \(prompt.observation\)"):
        DemoStep.of(msgspec.structs.replace(payload(), pictures=[seen]), well_formed=True)


def put(table: pa.Table, name: str, row: int, value: Any, kind: pa.DataType | None = None) -> pa.Table:
    column = table[name].to_pylist()
    column[row] = value
    return table.set_column(
        table.column_names.index(name), name, pa.array(column, kind or table.schema.field(name).type)
    )


# Rows of the demonstrations: 0; 1 2; 3 4 5; 6 7 8 9; 10; ...
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda t: put(t, "step", 5, 1), "row 5, column step: demonstration 2 has step 1 in place of 2"),
        (lambda t: t.slice(4), "row 0, column step: demonstration 2 has step 1 in place of 0"),
        (lambda t: put(t, "step", 3, -1), "row 3, column step: demonstration 2 has step -1 in place of 0"),
        (lambda t: put(t, "demo", 4, None), "row 4, column demo: it is null"),
        (lambda t: t.set_column(t.column_names.index("by"), "by", pa.nulls(t.num_rows)), "row 0, column by: it is"),
        (lambda t: put(t, "prompt_ids", 4, [1, None]), "row 4, column prompt_ids[1]: Expected `int`, got `null`"),
        (lambda t: put(t, "prompt_ids", 4, [1 << 40], pa.list_(pa.int64())), "column prompt_ids: Integer value"),
        (lambda t: put(retyped(t, {pa.string(): pa.binary()}), "task", 2, b"\xff\xfe"), "column task: Inv"),
        (lambda t: put(t, "task", 4, "b/train/1"), "row 4, column task: demonstration 2 has 'b/train/1', its first"),
        (lambda t: put(t, "step", 0, None).drop_columns(["digest"]), "it has no column digest"),
        (lambda t: t.append_column("task", t["task"]), "it has 2 columns task"),
        (lambda t: t.set_column(0, "demo", pa.array(["x"] * t.num_rows)), "column demo: Failed to parse"),
        (lambda t: t.replace_schema_metadata(None), "its metadata has no computerrl"),
        (lambda t: t.slice(0, 3), "holds 2 of the 9 demonstrations"),
        (lambda t: pa.concat_tables([t, t.set_column(0, "demo", pc.add(t["demo"], 9))]), "holds more than the 9"),
    ],
)  # fmt: skip
def test_damage_is_named_by_file_row_and_column(
    table: pa.Table, tmp_path: Path, damage: Callable[[pa.Table], pa.Table], said: str
) -> None:
    for name, more in (("one", {}), ("two", {"row_group_size": 2})):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(damage(table), path, **more)
        with pytest.raises(StoreError) as caught:
            list(demo_files.read(path)[1])
        assert said in str(caught.value)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def same(table: pa.Table, rows: int, **values: pa.Array) -> pa.Table:
    """The first row so many times, as steps of one demonstration."""
    columns = {name: pa.repeat(table[name][0], rows) for name in table.column_names}
    columns |= {"step": pa.array(range(rows), pa.int32())} | values
    return pa.table(columns, metadata=table.schema.metadata)


def text(size: int, rows: int) -> pa.Array:
    """One text for all rows, which is in memory once."""
    return pa.DictionaryArray.from_arrays(pa.repeat(0, rows).cast(pa.int32()), ["a" * size])


# Files of kilobytes that say that they hold gigabytes.
BOMBS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "many equal rows": (lambda t: same(t, 200_000, step=pa.repeat(0, 200_000)), "has step 0 in place of 1"),
    "a demonstration without an end": (lambda t: same(t, 20_000), "demonstration 0 has more than 10000 steps"),
    "a large text": (lambda t: same(t, 1, observation=text(40 << 20, 1)), "observation: it has 41943"),
    "a large list": (lambda t: same(t, 1, prompt_ids=pa.array([[1] * (5 << 20)])), "prompt_ids: it has 41943040 bytes"),
    "a large text in each row": (
        lambda t: same(t, 4000, observation=text(8 << 20, 4000)), "demonstration 0 has more than 33554432 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_of_a_large_table_takes_no_memory(table: pa.Table, tmp_path: Path, bomb: str) -> None:
    make, said = BOMBS[bomb]
    path = tmp_path / "bomb.parquet"
    pq.write_table(make(table), path, compression="zstd")
    assert path.stat().st_size < 1 << 20
    code = (
        "import sys\nfrom pathlib import Path\nfrom actors.replay.demos import demo_files\n"
        "from runtime.errors import StoreError\n"
        "try:\n    list(demo_files.read(Path(sys.argv[1]))[1])\nexcept StoreError as error:\n    print(error)\n"
        "print(Path('/proc/self/status').read_text())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, check=True)
    refusal, _, status = done.stdout.partition("\n")
    assert said in refusal
    peak = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert peak is not None
    assert int(peak[1]) < 300 << 10


def test_a_file_of_too_many_rows_is_not_read(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_format, "MOST_ROWS", table.num_rows - 1)
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(StoreError, match=f"has {table.num_rows} rows: at most {table.num_rows - 1} are read"):
        list(demo_files.read(tmp_path / "x.parquet")[1])


def test_what_is_no_file_and_rows_out_of_order_are_refused(table: pa.Table, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(StoreError, match="it is no regular file"):
        demo_files.read(tmp_path / "pipe.parquet")
    pq.write_table(table.take(list(range(table.num_rows - 1, -1, -1))), tmp_path / "back.parquet")
    with pytest.raises(StoreError, match="row 1, column demo"):
        list(demo_files.read(tmp_path / "back.parquet")[1])
