"""Files: those of others within a bound, and a disk that is slow or takes no more bytes."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BufferedReader
from pathlib import Path
from typing import Protocol

from runtime.errors import DiskRefuses, StoreError
from runtime.logs.events import Event
from runtime.logs.writer import DISK_ACCEPTS, DISK_ANSWERS, DISK_REFUSES, DISK_SLOW

SETTINGS = 1 << 20  # bytes of what a person writes: settings, tasks, a record
MODEL = 128 << 20  # bytes of a file next to a model's weights: a large vocabulary takes 35 MB


def opened(path: Path) -> BufferedReader:
    """The regular file at `path`, to be read; links are followed. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, most: int = SETTINGS) -> bytes:
    """All of a regular file of at most `most` bytes. Raises OSError."""
    with opened(path) as file:
        if len(content := file.read(most + 1)) > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
        return content


def read_text(path: Path, most: int = SETTINGS) -> str:
    """The same as UTF-8. Raises OSError, UnicodeDecodeError."""
    return read_bytes(path, most).decode()


SLOW_AFTER_S = 2.0


class Log(Protocol):
    """Where events go: an actor's log."""

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Write one event."""


@asynccontextmanager
async def on_disk(log: Log | None, file: str, what: str) -> AsyncIterator[None]:
    """Run the body, which does `what` to `file` in a thread."""
    began = time.monotonic()
    logged = False

    def slow() -> None:
        nonlocal logged
        logged = True
        if log is not None:
            log.emit(DISK_SLOW, file=file, what=what, waited_s=round(time.monotonic() - began, 3))

    timer = asyncio.get_running_loop().call_later(SLOW_AFTER_S, slow)
    try:
        yield
    finally:
        timer.cancel()
        if logged and log is not None:
            log.emit(DISK_ANSWERS, file=file, what=what, took_s=round(time.monotonic() - began, 3))


AGAIN_S = 2.0  # between two looks at a disk that refuses: no event says that there is room
PROBE_BYTES = 256 << 10  # more than what is left of the last block
_TO_DO = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EROFS: "mount it for writing again",
    errno.EIO: "the device fails: see dmesg",
}
# Of a folder that machines share: its server, or the way there, is gone. The same request succeeds once it is back.
AWAY = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN, errno.EHOSTDOWN, errno.EHOSTUNREACH)
_TO_DO |= dict.fromkeys(AWAY, "see that its file server answers and that it is mounted")


def flush(path: Path) -> None:
    """Have what a file or folder holds outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def store_error(text: str, error: OSError) -> StoreError:
    """The error of a failed read or write: DiskRefuses where the same may succeed later, else StoreError."""
    kind = DiskRefuses if error.errno in _TO_DO else StoreError
    return kind(f"{text}: {why(error.errno, str(error.strerror or error))}")


def why(number: int | None, text: str) -> str:
    """What the disk answered, and what to do about it."""
    return f"{text} ({_TO_DO[number]}; the run goes on by itself then)" if number in _TO_DO else text


def refusal(folder: Path) -> str:
    """Why the disk under `folder` takes no bytes, and what to do; "" where it takes them. Blocks."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            written = 0
            while written < PROBE_BYTES:
                written += os.write(file.fileno(), b"\1" * (PROBE_BYTES - written))
            os.fsync(file.fileno())
    except OSError as error:
        return why(error.errno, str(error.strerror or error))
    return ""


class DiskGate:
    """The gate before work that writes to `folder`: shut from a refusal until the disk takes bytes again."""

    def __init__(self, folder: Path, log: Log | None) -> None:
        self._folder, self._log = folder, log
        self._since: float | None = None
        self._one = asyncio.Lock()

    @property
    def shut(self) -> bool:
        return self._since is not None

    def refuse(self, cause: str) -> None:
        """The disk has refused; said once until it accepts."""
        if self._since is None:
            self._since = time.monotonic()
            if self._log is not None:
                self._log.emit(DISK_REFUSES, folder=str(self._folder), cause=cause)

    def accept(self) -> None:
        if self._since is not None and self._log is not None:
            self._log.emit(DISK_ACCEPTS, folder=str(self._folder), after_s=round(time.monotonic() - self._since, 3))
        self._since = None

    async def passed(self) -> None:
        async with self._one:
            while self.shut:
                if await asyncio.to_thread(refusal, self._folder):
                    await asyncio.sleep(AGAIN_S)
                else:
                    self.accept()
