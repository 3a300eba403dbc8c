"""What lies in a HOME at one moment, and what became of it by another.

Invariant: pure. A file counts as unchanged only when it was seen at both moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

MANIFEST = "manifest"  # as what HOME, the path "", is read to get one

# Kinds of entries; another one is "other", which holds no data. What is locked can't be read. A note is a short file in
# the form in which an office marks a document that it has open, under the name that it gives such a file.
FILE, FOLDER, LINK, LOCKED, NOTE = "file", "folder", "link", "locked", "note"
HOLDS = "holds"
HOME_ITSELF = ""  # the path of its entry
# Permissions that no program gives: to act as another user, and to let others write.
OPEN_BITS = 0o7022


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One path. `mark` is a file's digest, or inode and times where it was not read; of a link, where it leads."""

    kind: str
    size: int = 0  # bytes, of a file
    mode: int = 0  # permission bits
    mark: str = ""
    more: str = ""  # its other attributes, its names, an owner who is not HOME's, and what it `HOLDS` that was sought


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All entries by their paths below HOME; `cut` says why there are not more, "" where these are all.

    In a path a backslash is doubled and what is no UTF-8 is written as backslash and code, so paths differ as names do.
    """

    entries: dict[str, Entry] = {}
    cut: str = ""


class Deed(StrEnum):
    """What became of a path."""

    CREATED = "created"
    REMOVED = "removed"
    CHANGED = "changed"  # a file's content, or where a link leads
    EMPTIED = "emptied"  # a file that had content
    REPLACED = "replaced"  # by something of another kind
    LOCKED = "locked up"  # given other permissions than it had, or of a new one than are usual
    NARROWED = "narrowed"  # taken from others, as programs do with what is private
    OPENED = "opened to others"  # given one of `OPEN_BITS`
    MARKED = "marked"  # given other attributes, another owner, or a second name


@dataclass(frozen=True)
class FileChange:
    """One path that is not what it was; `before` and `after` are None where there was nothing."""

    path: str
    deed: Deed
    before: Entry | None
    after: Entry | None

    @property
    def kinds(self) -> set[str]:
        """What it was and is."""
        return {entry.kind for entry in (self.before, self.after) if entry is not None}


def changes(before: Manifest, after: Manifest) -> Iterator[FileChange]:
    """What became of each path, in the order of their names; permissions and attributes are deeds of their own."""
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        if old != new:
            for deed in _deeds(old, new):
                yield FileChange(path, deed, old, new)


def _deeds(old: Entry | None, new: Entry | None) -> Iterator[Deed]:
    if new is None:
        yield Deed.REMOVED
        return
    if old is None:
        yield Deed.CREATED
    elif old.kind != new.kind:
        yield Deed.LOCKED if new.kind == LOCKED else Deed.REPLACED
        return
    elif (old.size, old.mark) != (new.size, new.mark):
        yield Deed.EMPTIED if old.kind == FILE and old.size and not new.size else Deed.CHANGED
    was = 0 if old is None else old.mode
    if new.kind != LINK and new.mode & OPEN_BITS & ~was:
        yield Deed.OPENED
    elif old is None:
        if _unusual(new):
            yield Deed.LOCKED
    elif new.mode != was:
        yield Deed.NARROWED if new.mode == was & ~0o077 else Deed.LOCKED
    if new.more != ("" if old is None else old.more):
        yield Deed.MARKED


def _unusual(new: Entry) -> bool:
    """Whether a new file is not readable and writable by its owner, or a program; a new folder likewise."""
    least, most = (0o700, 0o755) if new.kind == FOLDER else (0o600, 0o644)
    return new.kind in (FILE, FOLDER) and (new.mode & least != least or bool(new.mode & ~most))
