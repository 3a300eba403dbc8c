"""What an episode was judged by: the files that its verifier read, and HOME before and after.

Invariant: an end state that is kept says all that the verdict was made of, or it is not kept at all. Its parts are
stored by their content, so equal files of one writer are stored once. It lives as long as its episode's steps.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Self, TypeVar

import msgspec

from actors.desktop.files.read_home import FileSeen, ReadRefusal
from apis.tasks.verify.manifest import Entry, Manifest
from runtime.errors import PayloadLost

MOST_BYTES = 4 << 20  # of all files of one episode; an end state above is not kept
MOST_UNPACKED = 64 << 20
_NO_BLOB = -1
T = TypeVar("T")


class _Path(msgspec.Struct, frozen=True, array_like=True):
    path: str
    blob: int = _NO_BLOB  # number of the part that holds the file
    names: list[str] | None = None
    refusal: ReadRefusal | None = None


class _Record(msgspec.Struct, frozen=True):
    paths: list[_Path]
    told: dict[str, str]
    removed: list[str]  # entries of HOME before that are not there after
    changed: dict[str, Entry]
    cut: str
    home: str


class EndState(msgspec.Struct, frozen=True):
    """`files` are as they lay in HOME, documents unparsed. `home` is what the desktop's programs call HOME.

    `told` is what a task file's commands wrote.
    """

    files: Sequence[FileSeen]
    before: Manifest
    after: Manifest
    home: str
    told: Mapping[str, str] = {}

    def parts(self) -> list[bytes]:
        """The record, HOME before, then the files; nothing where the files are too large to be kept."""
        held = [file.data for file in self.files if file.data is not None]
        if sum(map(len, held)) > MOST_BYTES:
            return []
        numbers = iter(range(2, 2 + len(held)))
        before, after = self.before.entries, self.after.entries
        record = _Record(
            paths=[
                _Path(file.path, _NO_BLOB if file.data is None else next(numbers), file.names, file.refusal)
                for file in self.files
            ],
            told=dict(self.told),
            removed=sorted(before.keys() - after.keys()),
            changed={path: after[path] for path in sorted(after) if before.get(path) != after[path]},
            cut=self.after.cut,
            home=self.home,
        )
        return [_packed(record), _packed(self.before), *held]

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Self:
        """The end state that `parts` gave. Raises PayloadLost."""
        try:
            record, before = _unpacked(parts[0], _Record), _unpacked(parts[1], Manifest)
            files = [
                FileSeen(path=one.path, data=None if one.blob == _NO_BLOB else parts[one.blob], names=one.names,
                         refusal=one.refusal)
                for one in record.paths
            ]  # fmt: skip
        except (msgspec.DecodeError, zlib.error, IndexError) as error:
            raise PayloadLost(f"it holds no end state: {error}") from error
        after = {**before.entries, **record.changed}
        for path in record.removed:
            after.pop(path, None)
        return cls(files, before, Manifest(after, record.cut), record.home, record.told)


def _packed(value: msgspec.Struct) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value), 1)


def _unpacked(packed: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(zlib.decompressobj().decompress(packed, MOST_UNPACKED), type=kind)
