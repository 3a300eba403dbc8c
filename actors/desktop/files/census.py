"""Looks at all of a HOME: kind, size, permissions and digest of every path. Runs in the process that reads files.

Invariant: the census follows no link and blocks on nothing. Names, paths, depth, bytes and time are bounded. The answer
says when a bound ended the look. The module needs the standard library only, because it is also sent to other machines
as text.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from _blake2 import blake2b  # what hashlib offers, without the loading of others

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than most folders take to be looked at
if TYPE_CHECKING:
    from typing import Any

DIGEST_BYTES = 16
PIECE = 1 << 20
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # before the first step of a policy programs still write


class _Over(Exception):  # noqa: N818 - an answer, not a defect
    pass


class _Census:
    def __init__(self, bounds: dict[str, Any]) -> None:
        self.entries: dict[str, list[Any]] = {}
        self.cut = ""
        self.paths, self.chars, self.depth = bounds["paths"], bounds["chars"], bounds["depth"]
        self.file_bytes, self.bytes = bounds["file_bytes"], bounds["bytes"]
        self.until = time.process_time() + bounds["cpu_s"]

    def add(self, path: str, kind: str, size: int, mode: int, mark: str = "") -> None:
        self.chars -= len(path) + len(mark)
        if len(self.entries) >= self.paths or self.chars < 0:
            raise _Over("more paths than are looked at")
        self.entries[path] = [kind, size, mode, mark]

    def folder(self, at: int, above: str, depth: int) -> None:
        """All that lies in the open folder `at`, whose own path is `above`."""
        if depth > self.depth:
            raise _Over("folders in folders deeper than is looked at")
        names = os.listdir(at)
        if len(self.entries) + len(names) > self.paths:
            raise _Over("more paths than are looked at")
        # What people keep comes before what programs keep, so that no cache uses up what others need to be read.
        for name in sorted(names, key=lambda name: (name.startswith("."), name)):
            if time.process_time() > self.until:
                raise _Over("more than is looked at in the time there is")
            try:
                self.one(at, name, above, depth)
            except OSError as error:
                if error.errno not in GONE:
                    raise

    def one(self, at: int, name: str, above: str, depth: int) -> None:
        path = above + _text(name)
        seen = os.stat(name, dir_fd=at, follow_symlinks=False)
        mode = stat.S_IMODE(seen.st_mode)
        if stat.S_ISLNK(seen.st_mode):
            self.add(path, "link", 0, 0, _text(os.readlink(name, dir_fd=at)))
        elif stat.S_ISREG(seen.st_mode):
            try:
                mark = self.mark(at, name, seen)
            except PermissionError:
                self.add(path, "locked", seen.st_size, mode)
            else:
                self.add(path, "file", seen.st_size, mode, mark)
        elif stat.S_ISDIR(seen.st_mode):
            self.add(path, "folder", 0, mode)
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            except PermissionError:
                self.entries[path][0] = "locked"
                return
            try:
                self.folder(below, path + "/", depth + 1)
            except PermissionError:  # it may be opened but not passed
                self.entries[path][0] = "locked"
            finally:
                os.close(below)
        else:
            self.add(path, "other", 0, mode)

    def mark(self, at: int, name: str, seen: os.stat_result) -> str:
        """The digest of a file; of one that is not read, what no program can set: its inode and time of change."""
        if seen.st_size > min(self.file_bytes, self.bytes):
            return f"unread {seen.st_ino} {seen.st_ctime_ns} {seen.st_mtime_ns}"
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return "replaced while it was looked at"
            found = blake2b(digest_size=DIGEST_BYTES)
            left = seen.st_size
            while left > 0 and (piece := os.read(file, min(PIECE, left))):
                found.update(piece)
                left -= len(piece)
            self.bytes -= seen.st_size - left
            return found.hexdigest()
        finally:
            os.close(file)


def _text(name: str) -> str:
    """A name as text, different for different names."""
    if name.isascii() and "\\" not in name:
        return name
    return os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")


def take(home: int, bounds: dict[str, Any]) -> dict[str, Any]:
    """The manifest of the open folder `home` in the form of `apis.tasks.verify.manifest.Manifest`."""
    census = _Census(bounds)
    try:
        census.folder(home, "", 1)
    except _Over as over:
        census.cut = str(over)
    except PermissionError:
        census.cut = "HOME itself is locked"
    return {"entries": census.entries, "cut": census.cut}
