"""Looks at all of a HOME: kind, size, permissions, attributes and digest of every path; and reads some of its files.

Runs in the process that reads files. HOME itself is an entry, too, by the path "".

Invariant: no link is followed, and nothing blocks. Only regular files below the given folder are read. Names, paths,
depth, bytes and time are bounded. The answer says when a bound ended the look. The module needs the standard library
only, because it is also sent to other machines as text.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import stat
import time
from _blake2 import blake2b  # what hashlib offers, without the loading of others

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than most folders take to be looked at
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

DIGEST_BYTES = 16
PIECE = 1 << 20
CACHES = ".cache"
LONG, SMALL_BYTES = 12, 256
HOLDS = "holds"  # as `apis.tasks.verify.manifest` has it
OWN_ATTRIBUTES = ("user.", "system.posix_acl_")  # that a file's owner can set
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # before the first step of a policy programs still write
NOTE_BYTES = 400
# How an office marks an open document: who, on which machine, since when, and by which profile.
NOTE_NAME = re.compile(r"\.~lock\..+#")
NOTE = re.compile(rb",[\w.-]{0,32},[\w.-]{0,64},\d\d\.\d\d\.\d{4} \d\d:\d\d,file:///[\w./%-]{1,200};")


class _Over(Exception):  # noqa: N818 - an answer, not a defect
    pass


class _Census:
    def __init__(self, bounds: dict[str, Any], sought: Sequence[str]) -> None:
        self.sought = [bytes.fromhex(digits) for digits in sought]
        self.entries: dict[str, list[Any]] = {}
        self.owner = (-1, -1)
        self.cut = ""
        self.paths, self.chars, self.depth = bounds["paths"], bounds["chars"], bounds["depth"]
        self.file_bytes, self.bytes = bounds["file_bytes"], bounds["bytes"]
        self.until = time.process_time() + bounds["cpu_s"]

    def add(self, path: str, entry: list[Any]) -> None:
        """`entry`: kind, size, mode, and for some kinds mark and what else is known of it."""
        self.chars -= len(path) + sum(map(len, entry[3:]))
        if len(self.entries) >= self.paths or self.chars < 0:
            raise _Over("more paths than are looked at")
        self.entries[path] = entry

    def home(self, at: int) -> None:
        seen = os.fstat(at)
        self.owner = (seen.st_uid, seen.st_gid)
        self.add("", ["folder", 0, stat.S_IMODE(seen.st_mode), "", self.more(at, seen)])
        self.folder(at, "", 1)

    def more(self, file: int, seen: os.stat_result) -> str:
        """What else is known of an open file or folder: "" where nothing is out of the ordinary."""
        notes = [] if (seen.st_uid, seen.st_gid) == self.owner else [f"owner {seen.st_uid} {seen.st_gid}"]
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
            notes.append(f"{seen.st_nlink} names")
        try:
            names = [name for name in os.listxattr(file) if name.startswith(OWN_ATTRIBUTES)]
            values = blake2b(digest_size=DIGEST_BYTES)
            for name in sorted(names):
                values.update(os.fsencode(name) + b"\0" + os.getxattr(file, name) + b"\0")
        except OSError:  # a file system without any, or one that was taken away meanwhile
            names = []
        return ", ".join([*notes, *([f"attributes {values.hexdigest()}"] if names else [])])

    def folder(self, at: int, above: str, depth: int) -> None:
        """All that lies in the open folder `at`, whose own path is `above`."""
        if depth > self.depth:
            raise _Over("folders in folders deeper than is looked at")
        names = os.listdir(at)
        if len(self.entries) + len(names) > self.paths:
            raise _Over("more paths than are looked at")
        # What people keep comes before what programs keep, and caches come last, so that they use up nothing that
        # others need to be read. Files come before folders.
        for name in sorted(names, key=lambda name: (name.startswith("."), _is_folder(name, at), name == CACHES, name)):
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
            self.add(path, ["link", 0, 0, _text(os.readlink(name, dir_fd=at))])
        elif stat.S_ISREG(seen.st_mode):
            try:
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            except PermissionError:
                self.add(path, ["locked", seen.st_size, mode])
                return
            try:
                seen = os.fstat(file)
                if not stat.S_ISREG(seen.st_mode):
                    raise OSError(errno.ENOENT, "replaced while it was looked at")
                kind, (mark, holds) = self.kind(name, file, seen), self.mark(file, seen)
                more = ", ".join(filter(None, (self.more(file, seen), holds)))
                self.add(path, [kind, seen.st_size, stat.S_IMODE(seen.st_mode), mark, more])
            finally:
                os.close(file)
        elif stat.S_ISDIR(seen.st_mode):
            self.add(path, ["folder", 0, mode])
            try:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            except PermissionError:
                self.entries[path][0] = "locked"
                return
            self.entries[path] += ["", self.more(below, seen)]
            try:
                self.folder(below, path + "/", depth + 1)
            except PermissionError:  # it may be opened but not passed
                self.entries[path][0] = "locked"
            finally:
                os.close(below)
        else:
            self.add(path, ["other", 0, mode])

    def kind(self, name: str, file: int, seen: os.stat_result) -> str:
        """ "note" for a note of an office; "file" for a file that only has such a name."""
        if not NOTE_NAME.fullmatch(name) or seen.st_size > NOTE_BYTES:
            return "file"
        return "note" if NOTE.fullmatch(os.pread(file, NOTE_BYTES, 0)) else "file"

    def mark(self, file: int, seen: os.stat_result) -> tuple[str, str]:
        """The digest of a file, and whether it holds what is sought.

        In place of the digest of one that is not read comes what no program can set: its inode and time of change.
        """
        if seen.st_size > min(self.file_bytes, self.bytes):
            return f"unread {seen.st_ino} {seen.st_ctime_ns} {seen.st_mtime_ns}", ""
        digest = blake2b(digest_size=DIGEST_BYTES)
        left, last, numbers = seen.st_size, b"", set[int]()
        longest = max(map(len, self.sought), default=0)
        while left > 0 and (piece := os.read(file, min(PIECE, left))):
            digest.update(piece)
            left -= len(piece)
            last = last[-longest:] + piece if longest else b""
            numbers.update(number for number, text in enumerate(self.sought) if _holds(last, text, seen.st_size))
        self.bytes -= seen.st_size - left
        return digest.hexdigest(), f"{HOLDS} {' '.join(map(str, sorted(numbers)))}" if numbers else ""


def _holds(data: bytes, sought: bytes, size: int) -> bool:
    """A word may be anywhere, so of a short text only a small file is said to hold it, and as words of its own."""
    if len(sought) >= LONG:
        return sought in data
    return size <= SMALL_BYTES and b" %b " % sought in b" %b " % b" ".join(data.split())


def _is_folder(name: str, at: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:  # gone meanwhile
        return False


def _text(name: str) -> str:
    """A name as text, different for different names."""
    if name.isascii() and "\\" not in name:
        return name
    return os.fsencode(name.replace("\\", "\\\\")).decode("utf-8", "backslashreplace")


def take(home: int, bounds: dict[str, Any], sought: Sequence[str] = ()) -> dict[str, Any]:
    """The manifest of the open folder `home` in the form of `apis.tasks.verify.manifest.Manifest`.

    It says of each file which of `sought`, bytes in hexadecimal digits, the file holds, by their numbers.
    """
    census = _Census(bounds, sought)
    try:
        census.home(home)
    except _Over as over:
        census.cut = str(over)
    except PermissionError:
        census.cut = "HOME itself is locked"
    return {"entries": census.entries, "cut": census.cut}


class UnreadError(Exception):
    """Why a path is not read, as `read_home.ReadRefusal` has it."""


def _step(name: str, folder: int) -> int:
    """A descriptor of `name` in `folder`; nothing is followed, nothing blocks."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        kind = "missing"
    except PermissionError:
        kind = "forbidden"
    except OSError:  # a socket, a name too long, or a link
        kind = "not_regular"
    try:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            kind = "link"
    except OSError:  # nothing to tell apart
        raise UnreadError(kind) from None
    raise UnreadError(kind)


def _names(folder: int, most: int, listing: int) -> list[str]:
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name).decode("utf-8", "backslashreplace")
            names.append(name + "/" if entry.is_dir(follow_symlinks=False) else name)
            most -= len(names[-1])
            if len(names) > listing or most < 0:
                raise UnreadError("too_big")
    return sorted(names)


def read_one(home: int, path: str, most: int, listing: int) -> bytes | list[str]:
    """The bytes of a regular file of at most `most` bytes, or the sorted names of a folder, at most `listing`.

    Raises UnreadError.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise UnreadError("bad_path")
    at = os.dup(home)
    try:
        for part in parts:
            below = _step(part, at)
            os.close(at)
            at = below
        status = os.fstat(at)
        if stat.S_ISDIR(status.st_mode):
            return _names(at, most, listing)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadError("not_regular")
        data = bytearray()
        while len(data) <= most and (part_read := os.read(at, min(1 << 20, most + 1 - len(data)))):
            data += part_read
        if len(data) > most:
            raise UnreadError("too_big")
        return bytes(data)
    finally:
        os.close(at)


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def read_all(
    home: int, order: dict[str, Any], given: bytes = b"", document: Callable[..., bytes] | None = None
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """One result per wanted path, and the bytes of the files that were read.

    `home` is an open folder; an entry with a "size" is not looked for there but is the next bytes of `given`. What is
    wanted once "cpu_s" of processor time are used is refused unread. `document` reads what is wanted otherwise than as
    bytes, and may raise UnreadError.
    """
    results: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    left, at = int(order["total_bytes"]), 0
    until = _cpu_s() + order["cpu_s"]
    for want in order["wanted"]:
        path = want["path"]
        try:
            if "size" in want:
                content: bytes | list[str] = given[at : at + want["size"]]
                at += want["size"]
            left_s = until - _cpu_s()
            if left_s <= 0:
                raise UnreadError("too_slow")
            if want["as_"] == "manifest":
                content = json.dumps(take(home, order["census"], want["sought"])).encode()
            elif "size" not in want:
                content = read_one(home, path, min(int(order["file_bytes"]), left), int(order["listing"]))
            if isinstance(content, list):
                left -= sum(map(len, content))
                results.append({"path": path, "names": content})
                continue
            kind = want["as_"]
            if document is None or kind in ("bytes", "manifest"):
                blob = content
            else:
                blob = document(content, kind, order["workbook"], left, left_s)
            left -= max(len(content), len(blob))
        except UnreadError as error:
            results.append({"path": path, "refusal": str(error)})
            continue
        except OSError:  # a folder whose listing is forbidden
            results.append({"path": path, "refusal": "forbidden"})
            continue
        blobs.append(blob)
        results.append({"path": path, "size": len(blob), "as_": kind})
    return results, blobs
