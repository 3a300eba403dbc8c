"""Files of HOME, for setting up a task before the policy acts.

Invariant: nothing outside HOME is read or written and no link is followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import PurePosixPath

from guest.errors import Refused

FILE_MAX_BYTES = 4 << 20


def _parts(path: str) -> tuple[str, ...]:
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts:
        raise Refused("bad_path", "a path is relative to HOME")
    return pure.parts


def _folder(parts: tuple[str, ...], make: bool) -> int:
    """A descriptor of HOME/parts, each component opened without following a link."""
    folder = os.open(os.environ["HOME"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise Refused("bad_path", f"{part[:200]}: {error.strerror}") from error
        finally:
            os.close(folder)
        folder = below
    return folder


def _file(path: str, flags: int) -> int:
    parts = _parts(path)
    folder = _folder(parts[:-1], make=bool(flags & os.O_CREAT))
    try:
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644, dir_fd=folder)
    except OSError as error:
        raise Refused("bad_path", f"{path[:200]}: {error.strerror}") from error
    finally:
        os.close(folder)


def read_file(path: str) -> bytes:
    """A regular file's bytes. Raises Refused."""
    with os.fdopen(_file(path, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_MAX_BYTES:
            raise Refused("bad_path", f"no regular file of at most {FILE_MAX_BYTES} bytes")
        return file.read(FILE_MAX_BYTES)


def write_file(path: str, data: bytes, executable: bool = False, append: bool = False) -> None:
    """Make or replace a file, with its folders, or add to one. Raises Refused."""
    if len(data) > FILE_MAX_BYTES:
        raise Refused("bad_request", f"at most {FILE_MAX_BYTES} bytes")
    mode = os.O_APPEND if append else os.O_TRUNC
    with os.fdopen(_file(path, os.O_WRONLY | os.O_CREAT | mode), "wb") as file:
        file.write(data)
        if executable:
            os.fchmod(file.fileno(), 0o755)


def make_folder(path: str) -> None:
    """Make a folder, with those above it. Raises Refused."""
    os.close(_folder(_parts(path), make=True))
