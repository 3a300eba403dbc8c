"""What hosts on other machines store in the run's folder and read from this machine: the main host's side.

Invariant: a payload is answered with its reference once this machine's store holds it, and a flush once the disk does,
as for a store on this machine. Of this machine's files a host reads those of the folders that its spec names, and no
other. It reads weights and stored payloads only where the spec says so, and makes folders only where the spec says that
it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtime import disk
from runtime.disk import store_error
from runtime.errors import ComputerRLError, PayloadLost, StoreError
from runtime.hosts.frames import MAX_FRAME_BYTES, Link
from runtime.messaging.message import BlobRef, Message
from runtime.segments import SegmentStore, read_blobs
from runtime.spec import HostSpec
from runtime.storage import sent_folders
from runtime.storage.sent_folders import FileEntry, entries, inner, is_weights

SEGMENTS = "segments"
PART_BYTES = 8 << 20
BLOBS_BYTES, BLOBS_MOST = 32 << 20, 4096  # of one answer; a single payload may be as large as a frame with its heads
HEADS_BYTES = 4096


class Append(Message):
    """Store this."""

    payload: bytes


class Flush(Message):
    """Answer once everything stored is on the disk; `files` as for `SegmentStore.flush`."""

    files: list[str]


class LookAtDisk(Message):
    """Does the disk take bytes?"""


class ListFiles(Message):
    """What does this folder hold, with weights or without, with its folders' files or without?"""

    folder: str
    weights: bool
    nested: bool = False


class ReadPart(Message):
    """`PART_BYTES` of a file from `offset` on."""

    folder: str
    name: str
    offset: int


class ReadBlobs(Message):
    """What do these name in the run's segments?"""

    refs: list[BlobRef]


class BeginFolder(Message):
    """A folder is to lie here."""

    folder: str


class WritePart(Message):
    """Append to a file of the folder that was begun."""

    folder: str
    name: str
    data: bytes


class EndFolder(Message):
    """That was all: have it lie there, if it is these files."""

    folder: str
    files: list[FileEntry]


class Stored(Message):
    """Of `Append`."""

    ref: BlobRef


class Flushed(Message):
    """Of `Flush`."""


class DiskLooked(Message):
    """Of `LookAtDisk`: why the disk takes no bytes, "" where it does."""

    refusal: str


class Files(Message):
    """Of `ListFiles`."""

    files: list[FileEntry]


class Part(Message):
    """Of `ReadPart`; nothing at the file's end."""

    data: bytes


class Blobs(Message):
    """Of `ReadBlobs`, in its order: the payloads, empty where one is lost, and why those are lost by their numbers."""

    found: list[bytes]
    lost: dict[int, str]


class Written(Message):
    """Of `BeginFolder`, `WritePart` and `EndFolder`."""


class Failed(Message):
    """The error's class and text."""

    kind: str
    text: str


Asked = Append | Flush | LookAtDisk | ListFiles | ReadPart | ReadBlobs | BeginFolder | WritePart | EndFolder
Answered = Stored | Flushed | DiskLooked | Files | Part | Blobs | Written | Failed


class Bulk:
    """What one life of a host stores and reads, over any number of connections."""

    def __init__(self, run_dir: Path, spec: HostSpec) -> None:
        self._run_dir, self._folder, self._host = run_dir, run_dir / SEGMENTS, spec.name
        self._reads, self._reads_weights = frozenset(spec.reads), frozenset(map(Path, spec.reads_weights))
        self._writes, self._reads_segments = frozenset(map(Path, spec.writes)), spec.reads_segments
        self._store: SegmentStore | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"bulk {spec.name}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests, one after another, until it ends."""
        link: Link[Asked | Answered] = Link(reader, writer, Asked)
        loop = asyncio.get_running_loop()
        try:
            while (asked := await link.receive()) is not None:
                link.write(await loop.run_in_executor(self._thread, self._answer, asked))
        finally:
            await link.close()

    async def close(self) -> None:
        """Release the store. Raises StoreError where its last flush fails."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        finally:
            self._thread.shutdown(wait=False)

    def _answer(self, asked: Asked | Answered) -> Answered:
        try:
            match asked:
                case Append():
                    return Stored(ref=self._segments().append(asked.payload))
                case Flush():
                    self._segments().flush(asked.files)
                    return Flushed()
                case LookAtDisk():
                    looked = disk.refusal(self._run_dir) if self._store is None else self._store.refusal()
                    return DiskLooked(refusal=looked)
                case ListFiles():
                    folder = self._readable(asked.folder, weights=asked.weights or asked.nested)
                    return Files(files=entries(folder, weights=asked.weights, nested=asked.nested))
                case ReadPart():
                    folder = self._readable(asked.folder, weights=is_weights(asked.name) or "/" in asked.name)
                    return Part(data=_part(inner(folder, asked.name), asked.offset))
                case ReadBlobs():
                    return self._blobs(asked.refs)
                case BeginFolder() | WritePart() | EndFolder():
                    return self._written(asked)
        except ComputerRLError as error:
            return Failed(kind=type(error).__name__, text=str(error))
        except OSError as error:
            return Failed(kind=StoreError.__name__, text=f"can't read: {error}")
        return Failed(kind=StoreError.__name__, text=f"not a request: {type(asked).__name__}")

    def _segments(self) -> SegmentStore:
        if self._store is None:
            self._store = SegmentStore(self._folder, self._host)
        return self._store

    def _blobs(self, refs: Sequence[BlobRef]) -> Blobs:
        if not self._reads_segments:
            raise StoreError(f"host {self._host} may not read the run's segments")
        size = sum(max(0, ref.size) for ref in refs)  # one of a size below 0 is read as lost
        if len(refs) > BLOBS_MOST or size > (BLOBS_BYTES if len(refs) > 1 else MAX_FRAME_BYTES - HEADS_BYTES):
            raise StoreError(f"{len(refs)} payloads of {size} bytes are too much for one answer")
        found = list(read_blobs(self._folder, refs))
        lost = {number: str(one) for number, one in enumerate(found) if isinstance(one, PayloadLost)}
        return Blobs(found=[b"" if isinstance(one, PayloadLost) else one for one in found], lost=lost)

    def _readable(self, folder: str, *, weights: bool) -> Path:
        path = Path(folder)
        whole = ".." not in path.parts and not self._reads_weights.isdisjoint((path, path.parent))
        if not whole and (weights or folder not in self._reads):
            raise StoreError(f"host {self._host} has no use for {folder}")
        return path

    def _written(self, asked: BeginFolder | WritePart | EndFolder) -> Written:
        path = Path(asked.folder)
        if ".." in path.parts or path.parent not in self._writes:
            raise StoreError(f"host {self._host} may not write {path}")
        try:
            match asked:
                case BeginFolder():
                    sent_folders.begin(path)
                case WritePart():
                    sent_folders.add(path, asked.name, asked.data)
                case EndFolder():
                    sent_folders.finish(path, asked.files)
        except OSError as error:
            raise store_error(f"can't write {path}", error) from error
        return Written()

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()


def _part(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PART_BYTES)
