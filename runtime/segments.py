"""Append-only, content-addressed payload storage: steps, screenshots.

Invariant: a flushed `BlobRef` reads back as exactly the bytes that were appended, whatever was killed since. Each life
of a writer begins files of its own, so one that was given up and still writes spoils none of its successor's. A torn
tail is at the end of a file that is over, and no reference points at it.

A segment is a sequence of records: magic (4 bytes), payload size (u32, little endian), blake2b-128 of the payload (16
bytes), payload. A `BlobRef.offset` points at the payload.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import struct
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from runtime import disk
from runtime.disk import store_error
from runtime.errors import DiskRefuses, PayloadLost, StoreError
from runtime.messaging.message import BlobRef

SEGMENTS = "segments"  # in a run's folder
MAGIC = b"CRS1"
MAX_BLOB_BYTES = 64 << 20
_HEADER = struct.Struct("<4sI16s")
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, *disk.AWAY)
_NAME = re.compile(r"([a-z0-9_-]+)-(\d{6})\.seg")


def digest_of(payload: bytes) -> bytes:
    """blake2b-128, 16 bytes."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class SegmentStore:
    """A writer of segments `<writer>-000000.seg`, `-000001.seg`, ... in `folder`, none of which existed. Thread-safe.

    A file is closed once it holds `max_bytes`.
    """

    def __init__(self, folder: Path, writer: str, max_bytes: int = 256 << 20) -> None:
        writer = writer.replace("/", "-")
        self._folder = folder
        self._writer = writer
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._dirty, self._lost = False, dict[str, str]()  # file -> why what lies in it may not be on the disk
        self._fd, self._end, self._number, self._name = -1, 0, 0, ""
        if not _NAME.fullmatch(f"{writer}-000000.seg"):
            raise StoreError(f"{writer!r} can't name segments")
        folder.mkdir(parents=True, exist_ok=True)
        names = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
        self._open(1 + max((int(m.group(2)) for m in names if m and m.group(1) == writer), default=-1))

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def name(self) -> str:
        return self._name

    def append(self, payload: bytes) -> BlobRef:
        """Store `payload`; it is safe from kill -9 at once and from a power cut after `flush`. Raises StoreError."""
        if len(payload) > MAX_BLOB_BYTES:
            raise StoreError(f"a payload of {len(payload)} bytes; {MAX_BLOB_BYTES} is the most")
        digest = digest_of(payload)
        with self._lock:
            if self._fd < 0:
                raise StoreError(f"segments of {self._writer} are closed")
            if self._name in self._lost:
                self._next()
            elif self._end and self._end + len(payload) > self._max_bytes:
                self._sync()
                self._next()
            ref = BlobRef(segment=self._name, offset=self._end + _HEADER.size, size=len(payload), digest=digest.hex())
            self._write(_HEADER.pack(MAGIC, len(payload), digest) + payload)
            return ref

    def flush(self, files: Collection[str] = ()) -> None:
        """Return once everything appended is on the disk. Blocks for the disk's time: call it in a thread.

        Raises StoreError where the disk refuses, and for every file in `files` that it refused before. The kernel
        reports lost pages only once, so a second call would find nothing wrong. Later appends go to another file.
        """
        with self._lock:
            if self._dirty and self._fd >= 0:
                self._sync()
                self._dirty = False
            for name in files:
                if name in self._lost:
                    raise DiskRefuses(self._lost[name])

    def close(self) -> None:
        """Flush and release the files. Can be repeated. Raises StoreError, with the files released, as `flush` does."""
        try:
            self.flush()
        finally:
            with self._lock:
                if self._fd >= 0:
                    os.close(self._fd)
                    self._fd = -1
                    if not self._end:
                        (self._folder / self._name).unlink(missing_ok=True)

    def _open(self, number: int) -> None:
        """Begin a file that no process has opened; a folder's listing from another machine may be an old one."""
        while True:
            name = f"{self._writer}-{number:06d}.seg"
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
                fd = os.open(self._folder / name, flags, 0o644)
                break
            except FileExistsError:  # of another life of this writer
                number += 1
        try:
            disk.flush(self._folder)
        except BaseException:
            os.close(fd)
            raise
        self._number, self._name, self._fd, self._end, self._dirty = number, name, fd, 0, False

    def _sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            refused = store_error(f"can't flush {self._name}", error)
            self._lost[self._name] = str(refused)
            with contextlib.suppress(StoreError):  # the next append tries again
                self._next()
            raise refused from error

    def _next(self) -> None:
        """Go on with the next segment; where it can't be made, the present one stays open. Raises StoreError."""
        before = self._fd
        try:
            self._open(self._number + 1)
        except OSError as error:
            raise store_error(f"can't begin a segment after {self._name}", error) from error
        os.close(before)

    def _write(self, record: bytes) -> None:
        position, left = self._end, memoryview(record)
        try:
            while left:
                written = os.pwrite(self._fd, left, position)
                position, left = position + written, left[written:]
        except OSError as error:
            with contextlib.suppress(OSError):  # the next append writes over the torn record anyway
                os.ftruncate(self._fd, self._end)
            raise store_error(f"can't append to {self._name}", error) from error
        self._end = position
        self._dirty = True


def read_blob(folder: Path, ref: BlobRef) -> bytes:
    """The payload of `ref`. Raises PayloadLost when it is missing, freed, torn or not what its digest says.

    Raises StoreError where this process is short of descriptors or memory, DiskRefuses where the folder's file server
    does not answer: neither says anything of the payload.
    """
    if not _NAME.fullmatch(ref.segment) or not 0 <= ref.size <= MAX_BLOB_BYTES or ref.offset < _HEADER.size:
        raise PayloadLost(f"not a reference into segments: {ref}")
    try:
        payload = _pread(folder / ref.segment, ref)
    except OSError as error:
        text = f"can't read {ref.segment} at {ref.offset}"
        if error.errno in _PASSING:
            raise store_error(text, error) from error
        raise PayloadLost(f"{text}: {error.strerror}") from error
    if digest_of(payload).hex() != ref.digest:
        raise PayloadLost(f"{ref.segment} at {ref.offset} does not hold {ref.digest}")
    return payload


def read_blobs(folder: Path, refs: Iterable[BlobRef]) -> Iterator[bytes | PayloadLost]:
    """The payloads of `refs`, in their order; in the place of a lost one, what `read_blob` raises.

    Raises StoreError as `read_blob` does where that says nothing of the payload.
    """
    for ref in refs:
        try:
            yield read_blob(folder, ref)
        except PayloadLost as error:
            yield error


def free_blob(folder: Path, ref: BlobRef) -> None:
    """Overwrite the payload of `ref` with a hole, giving its disk space back; reading it raises StoreError from now on.

    The caller knows that nothing refers to it any more. Raises StoreError when the reference is not a record's.
    """
    if not _NAME.fullmatch(ref.segment):
        raise StoreError(f"not a reference into segments: {ref}")
    keep_size_punch_hole = 0x01 | 0x02  # linux/falloc.h
    try:
        fd = os.open(folder / ref.segment, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise StoreError(f"can't open {ref.segment}: {error}") from error
    try:
        header = os.pread(fd, _HEADER.size, max(0, ref.offset - _HEADER.size))
        if header != _HEADER.pack(MAGIC, ref.size, bytes.fromhex(ref.digest)):
            raise StoreError(f"{ref.segment} has no record of {ref.digest} at {ref.offset}")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        if ref.size and libc.fallocate(fd, keep_size_punch_hole, ref.offset, ref.size) != 0:
            raise StoreError(f"can't free {ref.segment} at {ref.offset}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


def _pread(path: Path, ref: BlobRef) -> bytes:
    # Without waiting: whatever else than a file has this name, no reader hangs on it.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.pread(fd, ref.size, ref.offset)
    finally:
        os.close(fd)
