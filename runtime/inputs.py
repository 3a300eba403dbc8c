"""Files that others wrote, read within a bound.

Invariant: only regular files are read, and nothing is waited for: a FIFO, a device or a folder of a file's name is
refused. No more than the bound and one byte of a file, or of a line of it, is ever in memory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

SETTINGS = 1 << 20  # bytes of what a person writes: settings, tasks, a record
MODEL = 128 << 20  # bytes of what lies beside a model's weights: a large vocabulary takes 35 MB


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


def lines(file: BufferedReader, most: int) -> Iterator[bytes]:
    """The lines of a file, each with its end and of at most `most` bytes. Raises OSError."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise OSError(errno.EFBIG, f"a line of it has more than {most} bytes", str(file.name))
        yield line
