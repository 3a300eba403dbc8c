"""The run's segments and files, for a host on another machine.

Invariant: a reference is handed out once the main host's store holds the payload. A broken connection fails the request
under way and no other; the next one connects again. A file is used once it is whole and is what its digest says.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

import msgspec

from runtime.disk import store_error
from runtime.errors import DiskRefuses, HostLost, PayloadLost, StoreError, TransferFailed, named
from runtime.hosts.door import HostTicket, enter_blocking, read_exactly
from runtime.hosts.frames import MAX_FRAME_BYTES
from runtime.messaging.message import BlobRef
from runtime.storage.bulk import (
    BLOBS_BYTES,
    BLOBS_MOST,
    PART_BYTES,
    Answered,
    Append,
    Asked,
    BeginFolder,
    Blobs,
    DiskLooked,
    EndFolder,
    Failed,
    Files,
    Flush,
    Flushed,
    ListFiles,
    LookAtDisk,
    Part,
    ReadBlobs,
    ReadPart,
    Stored,
    WritePart,
    Written,
)
from runtime.storage.sent_folders import FileEntry, entries, inner

ANSWER_S = 300.0  # a slow disk is named by its caller long before
WHOLE_S = 4 * 3600.0  # a digest or flush of a whole checkpoint; a lost machine is noticed by the connection before
A = TypeVar("A", bound=Answered)
T = TypeVar("T")
_DECODER = msgspec.msgpack.Decoder(Answered)


class FarStore:
    """As `SegmentStore`, but the segments lie with the main host. Blocks as that does. Thread-safe.

    Raises TransferFailed, which is a StoreError, where the connection or this machine's disk is why.
    """

    def __init__(self, ticket: HostTicket) -> None:
        self._ticket = ticket
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self.name = f"segments of {ticket.name}"

    @property
    def folder(self) -> Path:
        """Where the files are: a name for people, for they are on another machine."""
        return Path(self._ticket.address) / self._ticket.name

    def append(self, payload: bytes) -> BlobRef:
        """Store `payload`. Raises StoreError."""
        ref = self._ask(Append(payload=payload), Stored).ref
        self.name = ref.segment
        return ref

    def flush(self, files: Collection[str] = ()) -> None:
        """Return once everything appended is on the main host's disk. Raises StoreError."""
        self._ask(Flush(files=sorted(files)), Flushed)

    def refusal(self) -> str:
        """Why the main host's disk takes no bytes; "" where it takes them."""
        return self._ask(LookAtDisk(), DiskLooked).refusal

    def read(self, refs: Iterable[BlobRef]) -> Iterator[bytes | PayloadLost]:
        """As `segments.read_blobs`, with many payloads in one answer. Raises StoreError."""
        for part in _parts(refs):
            answer = self._ask(ReadBlobs(refs=part), Blobs)
            if len(answer.found) != len(part):
                raise StoreError(f"{len(part)} payloads were asked for, and {len(answer.found)} came")
            for number, payload in enumerate(answer.found):
                yield PayloadLost(answer.lost[number]) if number in answer.lost else payload

    def fetch(self, folder: str, cache: Path, *, weights: bool = False, nested: bool = False) -> Path:
        """A folder of this machine with what `folder` holds with the main host. Raises StoreError."""
        files = self._ask(ListFiles(folder=folder, weights=weights, nested=nested), Files).files
        whole = hashlib.blake2b(msgspec.msgpack.encode(files), digest_size=16).hexdigest()
        place = cache / whole
        if place.is_dir():
            return place
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as made:
                for entry in files:
                    self._fetch(folder, entry, Path(made, "whole"))
                Path(made, "whole").mkdir(exist_ok=True)
                if not place.is_dir():  # another process of this machine may have been quicker
                    os.rename(Path(made, "whole"), place)
        except OSError as error:
            if not place.is_dir():
                raise _failed(f"can't keep {folder} in {cache}", error) from error
        return place

    def begin(self, folder: str) -> None:
        """The main host's `folder` is to hold something new. Raises StoreError."""
        self._ask(BeginFolder(folder=folder), Written)

    def add(self, here: Path, folder: str) -> list[FileEntry]:
        """Send what `here` and its folders hold, for a folder that was begun; nothing where there is no such folder.

        Raises StoreError.
        """
        files = entries(here, weights=True, nested=True) if here.is_dir() else []
        for entry in files:
            with (here / entry.name).open("rb") as file:
                self._ask(WritePart(folder=folder, name=entry.name, data=file.read(PART_BYTES)), Written)
                while part := file.read(PART_BYTES):
                    self._ask(WritePart(folder=folder, name=entry.name, data=part), Written)
        return files

    def end(self, folder: str, files: Sequence[FileEntry]) -> None:
        """All was sent: it lies at `folder` now. Raises StoreError where that is not `files`."""
        ordered = sorted(files, key=lambda entry: PurePosixPath(entry.name))
        self._ask(EndFolder(folder=folder, files=ordered), Written)

    def close(self) -> None:
        """Flush and hang up. Raises StoreError."""
        try:
            if self._sock is not None:
                self.flush()
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection; what was not flushed is not promised to be kept."""
        with self._lock:
            self._hang_up()

    def _fetch(self, folder: str, entry: FileEntry, into: Path) -> None:
        path = inner(into, entry.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.blake2b(digest_size=16), 0
        with path.open("wb") as file:
            while size < entry.size:
                part = self._ask(ReadPart(folder=folder, name=entry.name, offset=size), Part).data
                if not part:
                    break
                digest.update(part)
                size += file.write(part)
        if digest.hexdigest() != entry.digest:
            raise StoreError(f"{folder}/{entry.name} has changed while it was fetched")

    def _ask(self, asked: Asked, wanted: type[A]) -> A:
        body = msgspec.msgpack.encode(asked)
        with self._lock:
            try:
                if self._sock is None:
                    self._sock = enter_blocking(self._ticket, "bulk")
                self._sock.settimeout(WHOLE_S if isinstance(asked, ListFiles | EndFolder) else ANSWER_S)
                self._sock.sendall(len(body).to_bytes(4, "big") + body)
                size = int.from_bytes(read_exactly(self._sock, 4), "big")
                if size > MAX_FRAME_BYTES:
                    raise ConnectionError(f"an answer of {size} bytes")
                answer = _DECODER.decode(read_exactly(self._sock, size))
            except (OSError, HostLost, msgspec.DecodeError) as error:
                self._hang_up()
                raise TransferFailed(f"{self.name} can't be reached: {error}") from error
        if isinstance(answer, Failed):
            kind = named(answer.kind)
            raise (kind if kind is not None and issubclass(kind, StoreError) else StoreError)(answer.text)
        if not isinstance(answer, wanted):
            raise StoreError(f"{type(asked).__name__} was answered with {type(answer).__name__}")
        return answer

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


def fetched(ticket: HostTicket, folder: str, cache: Path, *, weights: bool = False, nested: bool = False) -> Path:
    """`FarStore.fetch` over a connection of its own."""
    store = FarStore(ticket)
    try:
        return store.fetch(folder, cache, weights=weights, nested=nested)
    finally:
        store.hang_up()


def payloads(ticket: HostTicket, refs: Iterable[BlobRef]) -> Iterator[bytes | PayloadLost]:
    """`FarStore.read` over a connection of its own."""
    store = FarStore(ticket)
    try:
        yield from store.read(refs)
    finally:
        store.hang_up()


def refusal(ticket: HostTicket) -> str:
    """Why the main host's disk takes no bytes, as far as can be known; "" where it takes them."""
    store = FarStore(ticket)
    try:
        return store.refusal()
    except StoreError as error:
        return str(error)
    finally:
        store.hang_up()


class Makers(Protocol):
    """Processes that make a folder together, each a part of it. Each calls the same methods in the same order."""

    def on_first(self, work: Callable[[], bytes]) -> bytes:
        """What `work` returns in the first process, which alone calls it; fails in all where it fails."""
        ...

    def on_all(self, work: Callable[[], bytes]) -> list[bytes]:
        """What `work` returns in each; fails in all where it fails in one."""
        ...


class Alone:
    """The makers of a folder that one process makes."""

    def on_first(self, work: Callable[[], bytes]) -> bytes:
        """What `work` returns."""
        return work()

    def on_all(self, work: Callable[[], bytes]) -> list[bytes]:
        """What `work` returns, as the only process's."""
        return [work()]


def made(ticket: HostTicket, folder: str, below: Path, make: Callable[[Path], T], makers: Makers) -> T:
    """What `make` returns of a folder that it makes below `below`; it lies at the main host's `folder` then.

    There it holds what all `makers` have made of it. Raises StoreError: DiskRefuses where the main host's disk does,
    TransferFailed where this machine's does. `make` has to fail in all where it fails in one.
    """
    store, places = FarStore(ticket), list[str]()

    def begin() -> bytes:
        store.begin(folder)
        return b""

    def end(parts: list[bytes]) -> bytes:
        store.end(folder, [one for part in parts for one in msgspec.msgpack.decode(part, type=list[FileEntry])])
        return b""

    with ExitStack() as kept:

        def place() -> bytes:
            places.append(kept.enter_context(_made_below(below)))
            return b""

        kept.callback(store.hang_up)
        makers.on_all(place)
        here = Path(places[0], Path(folder).name)
        try:
            found = make(here)
        except DiskRefuses as error:
            raise TransferFailed(f"{socket.gethostname()}: {error}") from error
        makers.on_first(begin)
        parts = makers.on_all(lambda: msgspec.msgpack.encode(store.add(here, folder)))
        makers.on_first(lambda: end(parts))
    return found


def _made_below(below: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(dir=below, prefix=".made-")
    except OSError as error:
        raise _failed(f"can't make a folder in {below}", error) from error


def _parts(refs: Iterable[BlobRef]) -> Iterator[list[BlobRef]]:
    """As many at a time as one answer holds."""
    part, size = list[BlobRef](), 0
    for ref in refs:
        if part and (len(part) == BLOBS_MOST or size + ref.size > BLOBS_BYTES):
            yield part
            part, size = [], 0
        part.append(ref)
        size += ref.size
    if part:
        yield part


def _failed(text: str, error: OSError) -> StoreError:
    """TransferFailed where this machine's disk may take the same bytes later, else StoreError."""
    found = store_error(f"{socket.gethostname()}: {text}", error)
    return TransferFailed(str(found)) if isinstance(found, DiskRefuses) else found


COPIES = 4


class Copies:
    """The copies of one host, below `folder`."""

    def __init__(self, ticket: HostTicket, folder: Path) -> None:
        self._ticket, self._folder = ticket, folder
        self._there: OrderedDict[str, Path] = OrderedDict()  # by the main host's path, the latest asked for last
        self._turn = asyncio.Lock()

    async def of(self, path: str, *, nested: bool = False) -> Path:
        """The copy of `path`, which is made once: such a folder never changes. Raises StoreError."""
        async with self._turn:
            if path not in self._there:
                self._there[path] = await asyncio.to_thread(
                    fetched, self._ticket, path, self._folder, weights=True, nested=nested
                )
            self._there.move_to_end(path)
            if len(self._there) > COPIES:
                _, oldest = self._there.popitem(last=False)
                if oldest not in self._there.values():
                    await asyncio.to_thread(shutil.rmtree, oldest)
            return self._there[path]

    async def close(self) -> None:
        """Remove them."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
