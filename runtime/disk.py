"""A disk that takes no more bytes.

Invariant: a refusal is logged once with its folder and what to do about it, and once when it is over. A part that waits
for the disk goes on by itself, and loses nothing.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from runtime.errors import DiskRefuses, StoreError
from runtime.logs.runtime_events import DISK_ACCEPTS, DISK_REFUSES
from runtime.storage.slow_disk import Log

AGAIN_S = 2.0  # between two looks at a disk that refuses: no event says that there is room
PROBE_BYTES = 256 << 10  # more than what is left of the last block
_TO_DO = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EROFS: "mount it for writing again",
    errno.EIO: "the device fails: see dmesg",
}


def flush(path: Path) -> None:
    """Have what a file or folder holds outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def store_error(text: str, error: OSError) -> StoreError:
    """What a failed write is called: DiskRefuses where the disk may take the same bytes later, else StoreError."""
    kind = DiskRefuses if error.errno in _TO_DO else StoreError
    return kind(f"{text}: {why(error.errno, str(error.strerror or error))}")


def why(number: int | None, said: str) -> str:
    """What the disk said, and what to do about it."""
    return f"{said} ({_TO_DO[number]}; the run goes on by itself then)" if number in _TO_DO else said


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
    """Stands before work that writes to `folder`: shut from a refusal until the disk takes bytes again."""

    def __init__(self, folder: Path, log: Log | None, look: Callable[[], str] | None = None) -> None:
        self._folder, self._log = folder, log
        self._look = look or functools.partial(refusal, folder)  # why the disk refuses; blocks
        self._since: float | None = None
        self._one = asyncio.Lock()

    @property
    def shut(self) -> bool:
        """Whether the disk refuses, as far as is known."""
        return self._since is not None

    def refuse(self, cause: str) -> None:
        """The disk has refused; said once until it accepts."""
        if self._since is None:
            self._since = time.monotonic()
            if self._log is not None:
                self._log.emit(DISK_REFUSES, folder=str(self._folder), cause=cause)

    def accept(self) -> None:
        """The disk has taken what it refused."""
        if self._since is not None and self._log is not None:
            self._log.emit(DISK_ACCEPTS, folder=str(self._folder), after_s=round(time.monotonic() - self._since, 3))
        self._since = None

    async def passed(self) -> None:
        """Return once the disk takes bytes."""
        async with self._one:
            while self.shut:
                if await asyncio.to_thread(self._look):
                    await asyncio.sleep(AGAIN_S)
                else:
                    self.accept()
