"""Recordings in Parquet, written anew by other writers: cut, shuffled, retyped, packed, damaged."""

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
from actors.replay.demos.format import Demo, DemoStep, RecordingHeader
from actors.replay.messages import StepPayload
from runtime.errors import StoreError
from runtime.storage.segments import digest_of


def step(text: str, refusal: str | None) -> DemoStep:
    content = StepPayload(
        prompt_ids=[1, 2, 3], response_ids=[4, 5], logprobs=[], spans=[], temperature=1.0, observation=text,
        response="Agent.wait()", action=None, refusal=refusal, result=None, screenshot=None, observe_ms=1 / 3,
        generate_ms=0.0, act_ms=1e-9,
    )  # fmt: skip
    return DemoStep(digest=digest_of(msgspec.msgpack.encode(content)).hex(), well_formed=True, payload=content)


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


def shuffled(table: pa.Table) -> pa.Table:
    return table.take([(5 * row + 3) % table.num_rows for row in range(table.num_rows)])


WRITERS: dict[str, Callable[[pa.Table], tuple[pa.Table, dict[str, Any]]]] = {
    "small row groups": lambda table: (table, {"row_group_size": 2}),
    "rows in any order": lambda table: (shuffled(table), {"row_group_size": 5}),
    "backwards": lambda table: (table.take(list(range(table.num_rows - 1, -1, -1))), {}),
    "large types": lambda table: (
        retyped(table, {pa.string(): pa.large_string(), pa.list_(pa.int32()): pa.large_list(pa.int64())}), {},
    ),
    "bytes": lambda table: (retyped(table, {pa.string(): pa.binary(), pa.int64(): pa.int16()}), {}),
    "dictionaries": lambda table: (
        retyped(table, {pa.string(): pa.dictionary(pa.int32(), pa.string())}), {"compression": "gzip"},
    ),
    "snappy, other pages": lambda table: (
        shuffled(table), {"compression": "snappy", "use_dictionary": False, "data_page_version": "2.0"},
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
        (lambda t: put(t, "step", 5, 1), "row 5, column step: demonstration 2 has step 1 a second time"),
        (lambda t: put(t, "step", 5, 3), "row 5, column step: demonstration 2 has step 3 in place of 2"),
        (lambda t: t.slice(4), "row 0, column step: demonstration 2 has step 1 in place of 0"),
        (lambda t: put(t, "step", 3, -1), "row 3, column step: demonstration 2 has step -1 in place of 0"),
        (lambda t: put(t, "demo", 4, None), "row 4, column demo: it is null"),
        (lambda t: put(t, "response", 4, None), "row 4, column response: it is null"),
        (lambda t: t.set_column(t.column_names.index("by"), "by", pa.nulls(t.num_rows)), "row 0, column by: it is"),
        (lambda t: put(t, "prompt_ids", 4, [1, None]), "row 4, column prompt_ids[1]: Expected `int`, got `null`"),
        (lambda t: put(t, "prompt_ids", 4, [1 << 40], pa.list_(pa.int64())), "row 4, column prompt_ids: Integer value"),
        (lambda t: put(retyped(t, {pa.string(): pa.binary()}), "task", 2, b"\xff\xfe"), "row 2, column task: Inv"),
        (lambda t: put(t, "task", 4, "b/train/1"), "row 4, column task: demonstration 2 has 'b/train/1', its first"),
        (lambda t: put(t, "step", 0, None).drop_columns(["digest"]), "it has no column digest"),
        (lambda t: t.append_column("task", t["task"]), "it has 2 columns task"),
        (lambda t: t.set_column(0, "demo", pa.array(["x"] * t.num_rows)), "row 0, column demo: Failed to parse"),
        (lambda t: t.replace_schema_metadata(None), "its metadata has no computerrl"),
        (lambda t: t.slice(0, 3), "holds 2 of the 9 demonstrations"),
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
