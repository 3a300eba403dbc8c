"""The file of what desktops have shown: one Parquet file that processes, runs and machines share.

A reader takes the whole file or none of it: its columns, its bounds and the digest of its rows are checked.
Writers take turns by a lock; a merge appears under the file's name when it is whole, so a killed writer leaves the file
as it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from apis.tasks.verify.verify import TaskVerdict
from runtime import disk
from runtime.errors import StoreError

Key = bytes  # 16 of them
FORMAT = b"computerrl-memo/2"
COLUMNS = ("scope", "key", "task", "result", "seen", "picture", "success", "reason", "score", "uses")
TEXTS = ["scope", "task", "result", "seen", "picture", "reason"]
FILE_MOST = 256 << 20  # bytes of a file that is read
ROWS_MOST = 1 << 20
RAW_MOST = 512 << 20  # bytes of all texts and screens; above it the lines that were used least go
TEXT_MOST = 1 << 20  # bytes of one


class MemoLine(msgspec.Struct, frozen=True):
    """What is known after the same task and actions."""

    scope: str
    key: Key
    task: str  # its id, for people and for choosing what to keep
    result: str | None = None  # of the last action; None of a task that was just set up
    seen: bytes | None = None  # an Observation as MessagePack
    verdict: TaskVerdict | None = None
    uses: int = 0  # how often it was made or asked for
    picture: bytes | None = None  # of the same screen, a PNG, where a model has seen it

    @property
    def size_bytes(self) -> int:
        shown = len(self.seen or b"") + len(self.picture or b"")
        return shown + len((self.result or "").encode()) + len(self.task) + 200

    def contradicts(self, other: MemoLine) -> str:
        """What both know and know otherwise, "" where nothing is. Pictures differ by a caret that blinks."""
        for what in ("result", "seen", "verdict"):
            mine, its = getattr(self, what), getattr(other, what)
            if mine is not None and its is not None and mine != its:
                return what
        return ""

    def knows(self, other: MemoLine) -> bool:
        return all(getattr(other, what) is None or getattr(self, what) is not None for what in _KNOWN)

    def joined(self, other: MemoLine) -> MemoLine:
        more = {what: getattr(self, what) for what in _KNOWN if getattr(self, what) is not None}
        return msgspec.structs.replace(other, uses=self.uses + other.uses, **more)


_OWN = frozenset(MemoLine.__struct_fields__)
_KNOWN = ("result", "seen", "picture", "verdict")


class MemoChange(msgspec.Struct, frozen=True):
    """A line as it is now, None where it was dropped; `fresh` where more than its uses has changed."""

    line: MemoLine | None
    fresh: bool


def read(file: Path) -> list[MemoLine]:
    """All lines. Raises StoreError for anything but a memo within the bounds, as it was written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with disk.opened(file) as source:
            if os.fstat(source.fileno()).st_size > FILE_MOST:
                raise StoreError(f"{file} has more than {FILE_MOST >> 20} MiB")
            schema = pq.read_schema(source)
            given = (schema.metadata or {}).get(b"format", b"")
            if given != FORMAT or not schema.equals(_schema(), check_metadata=False):
                raise StoreError(f"{file} is no memo of format {FORMAT.decode()}")
            opened = pq.ParquetFile(source, read_dictionary=TEXTS)
            meta = opened.metadata
            raw = sum(meta.row_group(n).total_byte_size for n in range(meta.num_row_groups))
            if meta.num_rows > ROWS_MOST or raw > 2 * RAW_MOST:
                raise StoreError(f"{file} holds more than a memo may: {meta.num_rows} lines, {raw >> 20} MiB")
            digest = schema.metadata.get(b"digest", b"").decode(errors="replace")
            lines = [_line(row) for row in _rows(opened)]
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, msgspec.ValidationError) as error:
        why = str(error).splitlines()[0] if str(error) else repr(error)
        raise StoreError(f"{file} can't be read as a memo: {why}") from None
    if digest_of(lines) != digest:
        raise StoreError(f"{file} is not what its digest says: its lines were changed after it was written")
    return lines


def _rows(opened: Any) -> Iterator[dict[str, Any]]:
    """The file's rows. Raises ValueError where texts are longer than they may be, however small they are packed."""
    import pyarrow.compute as pc

    left = 2 * RAW_MOST
    for batch in opened.iter_batches(128):
        for name in TEXTS:
            column = batch.column(name)
            sizes = pc.binary_length(column.dictionary)
            if (pc.max(sizes).as_py() or 0) > TEXT_MOST:
                raise ValueError("one of its lines is longer than any desktop's")
            left -= pc.sum(sizes.take(column.indices)).as_py() or 0
        if left < 0:
            raise ValueError(f"its texts and screens take more than {2 * RAW_MOST >> 20} MiB")
        yield from batch.to_pylist()


def fits(line: MemoLine) -> bool:
    """Whether a reader takes it."""
    reason = "" if line.verdict is None else line.verdict.reason
    texts = (line.scope, line.task, line.result or "", reason)
    return max(len(line.seen or b""), len(line.picture or b""), *(len(text.encode()) for text in texts)) <= TEXT_MOST


def merge(file: Path, changes: Mapping[Key, MemoChange]) -> list[MemoLine]:
    """Put `changes` into the file and return its lines. What is known otherwise there is dropped.

    Raises StoreError for a file that is no memo, and OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    place = file.with_name(f".{file.name}.lock")
    with os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o644), "rb", buffering=0) as lock:  # no FIFO is waited for
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = {line.key: line for line in read(file)} if file.exists() else {}
        for key, change in changes.items():
            _apply(lines, key, change)
        kept = bounded(list(lines.values()))
        write(file, kept)
    return kept


def _apply(lines: dict[Key, MemoLine], key: Key, change: MemoChange) -> None:
    there, line = lines.get(key), change.line
    if there is not None and line is not None and there.scope != line.scope:  # other sources: the newer ones are known
        lines[key] = line
    elif line is None or (there is not None and there.contradicts(line)):
        lines.pop(key, None)
    elif there is not None:
        uses = max(there.uses, line.uses)  # both count from what was read: never fewer than either has seen
        lines[key] = msgspec.structs.replace(there.joined(line), uses=uses)
    elif change.fresh:  # else another writer has dropped it
        lines[key] = line


def bounded(lines: Sequence[MemoLine], raw_most: int = RAW_MOST, rows_most: int = ROWS_MOST) -> list[MemoLine]:
    """The lines that were used most and fit, in the order of their keys."""
    kept, left = [], raw_most
    for line in sorted(lines, key=lambda one: -one.uses)[:rows_most]:
        left -= line.size_bytes
        if left < 0:
            break
        kept.append(line)
    return sorted(kept, key=lambda line: (line.scope, line.task, line.key))


def write(file: Path, lines: Sequence[MemoLine]) -> None:
    """Write `lines`, replacing the file once they are on the disk. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema().with_metadata({"format": FORMAT, "digest": digest_of(lines)})
    part = file.with_name(f".{file.name}.part")
    table = pa.Table.from_pylist([_row(line) for line in lines], schema=schema)
    pq.write_table(table, part, compression="zstd", compression_level=9)
    with part.open("rb") as written:
        os.fsync(written.fileno())
    part.replace(file)


def digest_of(lines: Sequence[MemoLine]) -> str:
    """Of all that lines hold, in their order."""
    made = hashlib.blake2b(digest_size=16)
    for line in lines:
        made.update(msgspec.msgpack.encode(line))
    return made.hexdigest()


def _schema() -> Any:
    import pyarrow as pa

    kinds = (
        *(pa.string(), pa.binary(16), pa.string(), pa.string(), pa.binary(), pa.binary()),
        *(pa.bool_(), pa.string(), pa.float64(), pa.int64()),
    )
    return pa.schema(list(zip(COLUMNS, kinds, strict=True)))


def _row(line: MemoLine) -> dict[str, Any]:
    verdict = line.verdict
    judged = {} if verdict is None else msgspec.structs.asdict(verdict)
    return {name: judged.get(name, getattr(line, name, None)) for name in COLUMNS}


def _line(row: dict[str, Any]) -> MemoLine:
    verdict = None
    if row["success"] is not None:
        verdict = msgspec.convert({name: row[name] for name in ("success", "reason", "score")}, TaskVerdict)
    line = MemoLine(**{name: row[name] for name in COLUMNS if name in _OWN}, verdict=verdict)
    msgspec.convert(msgspec.structs.asdict(line), MemoLine)  # no part of it is missing
    return line
