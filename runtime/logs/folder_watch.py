"""Waking up when files of a folder change (Linux inotify).

Invariant: a change made after the watch began ends the next `wait`; the descriptor is closed with the watch.
"""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime.errors import StoreError

_MODIFY_MOVED_TO_CREATE = 0x2 | 0x80 | 0x100  # linux/inotify.h
LONGEST_WAIT_S = 5.0  # file systems that other machines write to may not tell of changes


class FolderWatch:
    """Watches one folder, not its subfolders."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0 or libc.inotify_add_watch(self._fd, os.fsencode(folder), _MODIFY_MOVED_TO_CREATE) < 0:
            number = ctypes.get_errno()
            if self._fd >= 0:
                os.close(self._fd)
            raise StoreError(f"can't watch {folder}: {os.strerror(number)}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.close(self._fd)

    def wait(self) -> None:
        """Block until something changed since the last call, at most `LONGEST_WAIT_S`."""
        if select.select([self._fd], [], [], LONGEST_WAIT_S)[0]:
            os.read(self._fd, 1 << 16)
