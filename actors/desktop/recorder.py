"""Stores an episode's steps, its pictures, and what it was judged by, in the run's segments.

Invariant: a `StepRef` is handed out only for a payload that a reader will find, whatever is killed next. A slow disk
holds back only the callers that store: writes go one after another in a thread of their own. After `STUCK_S` the disk
counts as broken. An end state that is kept says all that the verdict was made of, or it is not kept at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import msgspec

from actors.desktop.files.read_home import FileSeen, ReadRefusal
from actors.desktop.link import is_jpeg
from actors.replay.messages import PictureRef, StepPayload, StepRef
from apis.tasks.verify.manifest import Entry, Manifest
from runtime.disk import DiskGate, Log, on_disk
from runtime.errors import DiskRefuses, PayloadLost, StoreError
from runtime.messaging.message import BlobRef
from runtime.segments import SegmentStore

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
    outputs: dict[str, str] = msgspec.field(name="told")  # as records of before have it
    removed: list[str]  # entries of HOME before that are not there after
    changed: dict[str, Entry]
    cut: str
    home: str


class EndState(msgspec.Struct, frozen=True):
    """`files` are as they lay in HOME, documents unparsed. `home` is what the desktop's programs call HOME.

    `outputs` is what a task file's commands wrote.
    """

    files: Sequence[FileSeen]
    before: Manifest
    after: Manifest
    home: str
    outputs: Mapping[str, str] = {}

    def parts(self) -> list[bytes]:
        """The record, HOME before, then the files; nothing where the files are too large to be kept."""
        contents = [file.data for file in self.files if file.data is not None]
        if sum(map(len, contents)) > MOST_BYTES:
            return []
        numbers = iter(range(2, 2 + len(contents)))
        before, after = self.before.entries, self.after.entries
        record = _Record(
            paths=[
                _Path(file.path, _NO_BLOB if file.data is None else next(numbers), file.names, file.refusal)
                for file in self.files
            ],
            outputs=dict(self.outputs),
            removed=sorted(before.keys() - after.keys()),
            changed={path: after[path] for path in sorted(after) if before.get(path) != after[path]},
            cut=self.after.cut,
            home=self.home,
        )
        return [_packed(record), _packed(self.before), *contents]

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Self:
        """The end state that `parts` gave. Raises PayloadLost."""
        try:
            record, before = _unpacked(parts[0], _Record), _unpacked(parts[1], Manifest)
            files = [
                FileSeen(path=path.path, data=None if path.blob == _NO_BLOB else parts[path.blob], names=path.names,
                         refusal=path.refusal)
                for path in record.paths
            ]  # fmt: skip
        except (msgspec.DecodeError, zlib.error, IndexError) as error:
            raise PayloadLost(f"it holds no end state: {error}") from error
        after = {**before.entries, **record.changed}
        for path in record.removed:
            after.pop(path, None)
        return cls(files, before, Manifest(after, record.cut), record.home, record.outputs)


def _packed(value: msgspec.Struct) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value), 1)


def _unpacked(packed: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(zlib.decompressobj().decompress(packed, MOST_UNPACKED), type=kind)


STUCK_S = 300.0
TOOL = "tool"  # the function of an action that calls an application's tool, which `owner` and `name` tell


def called(payload: StepPayload) -> tuple[str, str]:
    """`StepRef.function` and `StepRef.line` of a step."""
    line = hashlib.blake2b((payload.action or payload.response).encode(), digest_size=8).hexdigest()
    if payload.action is None:
        return "", line
    action = msgspec.json.decode(payload.action, type=dict[str, Any])
    name = f"{action['owner']}.{action['name']}" if action["function"] == TOOL else str(action["function"])
    return name, line


class Recorder:
    """Writes to the segments of one host process, which its seats share."""

    def __init__(self, store: SegmentStore, log: Log | None = None) -> None:
        self._store = store
        self.gate = DiskGate(store.folder, log)  # shut while the disk refuses
        self._log = log
        self._encoder = msgspec.msgpack.Encoder()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="segments")

    async def picture(self, jpeg: object) -> BlobRef | None:
        """Store a screenshot; anything but a JPEG of sane size is left out. Raises StoreError."""
        if not is_jpeg(jpeg):
            return None
        return await self._do("append", lambda: self._store.append(jpeg))

    async def shown(self, png: bytes, at: int, before: Mapping[str, PictureRef]) -> PictureRef:
        """Store what the model saw at `at` of its prompt, a PNG. Raises StoreError.

        `before` has by digest what this episode has stored. An unchanged screen is not stored again. Another episode's
        may be dropped before this one ends.
        """
        digest = hashlib.sha256(png).hexdigest()
        if (same := before.get(digest)) is not None:
            return msgspec.structs.replace(same, at=at)
        width, height = struct.unpack(">II", png[16:24])
        blob = await self._do("append", lambda: self._store.append(png))
        return PictureRef(blob=blob, digest=digest, width=width, height=height, at=at)

    async def step(self, payload: StepPayload, *, well_formed: bool) -> StepRef:
        """Store one step and describe it for the ledger. Raises StoreError."""
        encoded = self._encoder.encode(payload)
        blob = await self._do("append", lambda: self._store.append(encoded))
        function, line = called(payload)
        return StepRef(
            blob=blob,
            prompt_tokens=len(payload.prompt_ids),
            response_tokens=len(payload.response_ids),
            well_formed=well_formed,
            oldest=min((span.version for span in payload.spans), default=None),
            newest=max((span.version for span in payload.spans), default=None),
            screenshot=payload.screenshot,
            function=function,
            line=line,
            surprisal=-sum(payload.logprobs),
            pictures=[picture.blob for picture in payload.pictures],
        )

    async def end_state(self, step: StepRef, end: EndState) -> StepRef:
        """Store what the episode was judged by beside its last `step`. Raises StoreError."""
        parts = end.parts()
        blobs = await self._do("append", lambda: [self._store.append(part) for part in parts])
        return msgspec.structs.replace(step, end=blobs)

    async def flush(self, steps: Sequence[StepRef]) -> None:
        """Make `steps`, stored before, safe from a power cut. Raises StoreError."""
        files = {blob.segment for step in steps for blob in step.blobs}
        await self._do("flush", lambda: self._store.flush(files))

    async def close(self) -> None:
        await self._do("close", self._store.close)
        self._thread.shutdown(wait=False)

    async def _do(self, what: str, work: Callable[[], T]) -> T:
        file = self._store.name
        try:
            async with asyncio.timeout(STUCK_S), on_disk(self._log, file, what):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except DiskRefuses as error:
            self.gate.refuse(str(error))
            raise
        except TimeoutError as error:
            raise StoreError(f"{file}: {what} was not done within {STUCK_S:g} s") from error
