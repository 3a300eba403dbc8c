"""The memo's file: whatever writers do and whoever is killed, a reader finds a whole one or refuses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.desktop import memo_file
from actors.desktop.memo import stored
from actors.desktop.memo_file import TEXT_MOST, MemoChange, MemoLine, bounded, merge, read, write
from apis.tasks.verify.verify import TaskVerdict
from runtime.errors import ConfigError, StoreError

ROOT = Path(__file__).resolve().parents[3]


def line(number: int, result: str = "done", uses: int = 1) -> MemoLine:
    verdict = TaskVerdict(True, "it says what it should") if number % 2 else None
    return MemoLine("s", number.to_bytes(16, "big"), "t", result, b"seen", verdict, uses)


def changes(*lines: MemoLine) -> dict[bytes, MemoChange]:
    return {one.key: MemoChange(one, fresh=True) for one in lines}


def test_what_two_writers_know_differently_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "memo.parquet"
    merge(file, changes(line(1), line(2)))
    left = merge(file, changes(line(1, "other"), line(3)))
    assert [one.key[-1] for one in left] == [2, 3]
    merge(file, {line(3).key: MemoChange(None, fresh=True)})
    back = merge(file, {line(3).key: MemoChange(line(3, uses=5), fresh=False)})
    assert [one.key[-1] for one in back] == [2]  # a use of what was dropped does not bring it back


def test_what_was_used_least_goes_first() -> None:
    kept = bounded([line(n, uses=n) for n in range(9)], rows_most=3)
    assert sorted(one.uses for one in kept) == [6, 7, 8]
    assert len(bounded([line(n) for n in range(9)], raw_most=2 * line(1).size_bytes)) == 2


WRITER = """
import sys
from pathlib import Path
from tests.actors.desktop.test_memo_file import changes, line
from actors.desktop.memo_file import merge
first, rounds = int(sys.argv[2]), int(sys.argv[3])
for n in range(rounds):
    merge(Path(sys.argv[1]), changes(line(first + n)))
    print(n, flush=True)
"""


def writer(file: Path, first: int, rounds: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", WRITER, str(file), str(first), str(rounds)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "memo.parquet"
    writers = [writer(file, 1000 * n, 12) for n in range(2)]
    assert [one.communicate(timeout=120) and one.returncode for one in writers] == [0, 0]
    assert len(read(file)) == 24


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "memo.parquet"
    for round_ in range(3):
        killed = writer(file, 1000 * round_, 100_000)
        assert killed.stdout is not None
        for _ in range(3):
            killed.stdout.readline()
        time.sleep(0.003 * round_)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(read(file)) >= 3 * (round_ + 1)
    assert len(merge(file, changes(line(7_000_000)))) >= 10  # nor does its lock stay


def test_a_file_that_is_no_memo_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "memo.parquet"
    write(file, [line(n) for n in range(5)])
    table = pq.read_table(file)
    for name, broken in {
        "cut": table.slice(0, 4),
        "other columns": table.drop_columns(["seen"]),
        "no digest": table.replace_schema_metadata({"format": "computerrl-memo/1"}),
        "other format": table.replace_schema_metadata({"format": "x"}),
    }.items():
        pq.write_table(broken, file)
        with pytest.raises(StoreError):
            read(file)
        with pytest.raises(StoreError):
            merge(file, changes(line(9)))
        assert pq.read_table(file).num_rows == broken.num_rows, name  # a stranger's file stays as it was
    file.write_bytes(b"PAR1 or not")
    with pytest.raises(StoreError):
        read(file)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, make: Callable[[Path], object]) -> None:
    file = tmp_path / "memo.parquet"
    make(file)
    with pytest.raises(StoreError, match="no regular file"):
        merge(file, changes(line(9)))
    with pytest.raises(ConfigError, match=r"memo_file: .*no regular file"):
        stored(file)
    os.mkfifo(tmp_path / ".other.parquet.lock")
    assert len(merge(tmp_path / "other.parquet", changes(line(9)))) == 1


def test_a_file_with_a_right_digest_is_refused_where_its_lines_are_none(tmp_path: Path) -> None:
    file = tmp_path / "memo.parquet"
    write(file, [line(n) for n in range(3)])
    table = pq.read_table(file)
    number = table.column_names.index("reason")
    pq.write_table(table.set_column(number, table.field(number), pa.nulls(3, pa.string())), file)
    with pytest.raises(StoreError, match="str"):
        read(file)
    write(file, [line(2, "x" * (TEXT_MOST + 1))])
    with pytest.raises(StoreError, match="longer"):
        read(file)


def test_a_small_file_of_many_large_texts_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo_file, "RAW_MOST", 16 * TEXT_MOST)
    file = tmp_path / "memo.parquet"
    write(file, [line(2)])
    schema, rows = pq.read_schema(file), 100
    known = {"scope": "s", "task": "t", "key": bytes(16), "uses": 0, "result": "x" * (TEXT_MOST - 9)}
    columns = [pa.repeat(pa.scalar(known.get(field.name), field.type), rows) for field in schema]
    with pq.ParquetWriter(file, schema, compression="zstd", dictionary_pagesize_limit=2 * TEXT_MOST) as out:
        out.write_table(pa.Table.from_arrays(columns, schema=schema))  # the text is in the file once
    assert file.stat().st_size < TEXT_MOST
    with pytest.raises(StoreError, match="texts and screens"):
        read(file)
