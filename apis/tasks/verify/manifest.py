"""What lies in a HOME at one moment, and what became of it by another.

Invariant: pure. A file counts as unchanged only when it was seen at both moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

MANIFEST = "manifest"  # as what HOME, the path "", is read to get one

# Kinds of entries; another one is "other", which holds no data. What is locked can't be read.
FILE, FOLDER, LINK, LOCKED = "file", "folder", "link", "locked"


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One path. `mark` is a file's digest, or inode and times where it was not read; of a link, where it leads."""

    kind: str
    size: int = 0  # bytes, of a file
    mode: int = 0  # permission bits
    mark: str = ""


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
    LOCKED = "locked up"  # other permissions


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
    """Each path that is not what it was, in the order of their names."""
    for path in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(path), after.entries.get(path)
        if old != new:
            yield FileChange(path, _deed(old, new), old, new)


def _deed(old: Entry | None, new: Entry | None) -> Deed:
    if old is None:
        return Deed.CREATED
    if new is None:
        return Deed.REMOVED
    if old.kind != new.kind:
        return Deed.LOCKED if new.kind == LOCKED else Deed.REPLACED
    if old.kind == FILE and old.size and not new.size:
        return Deed.EMPTIED
    same = (old.size, old.mark) == (new.size, new.mark)
    return Deed.LOCKED if same else Deed.CHANGED
