"""What an episode may change in a HOME, and what else it did change.

Invariant: pure. A path that no rule names must be what it was. No rule lets a file become empty or change its kind, and
none opens it to others or gives it other attributes. A rule for a file's content allows no
change of its permissions. What was removed may not reappear among programs' files, whose growth is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from apis.tasks.verify.manifest import (
    FILE,
    FOLDER,
    HOLDS,
    HOME_ITSELF,
    LINK,
    Deed,
    Entry,
    FileChange,
    Manifest,
    changes,
)

SHOWN = 3  # paths in a reason
NAME_SHOWN = 120  # characters of one
STUB_BYTES, LOST = 64, 8  # a program's file is lost that has so few bytes left, and was so many times larger
HOARD_BYTES, HOARD_PATHS = 128 << 20, 6000  # what programs may add to their own places in an episode
CREATE, CHANGE, REMOVE, NARROW = Deed.CREATED, Deed.CHANGED, Deed.REMOVED, Deed.NARROWED


@dataclass(frozen=True)
class May:
    """What may become of the paths below HOME that match `paths`.

    In `paths`, * stands for a part of a name and ** for any number of names. A rule for "**" of a folder is one for the
    folder itself, too. `loosely`: the file may also become empty or have other permissions, and links are files.
    `leads`: the rule is about links alone, and they lead where this matches.
    """

    paths: str
    deeds: tuple[Deed, ...]
    loosely: bool = False
    but: tuple[str, ...] = ()  # beside these
    kinds: tuple[str, ...] = (FILE, FOLDER)
    leads: str = ""

    def allows(self, change: FileChange) -> bool:
        """Whether this rule is about such a change."""
        if not _regex(self.paths).fullmatch(change.path) or any(_regex(one).fullmatch(change.path) for one in self.but):
            return False
        kinds = {LINK} if self.leads else {*self.kinds, LINK} if self.loosely else set(self.kinds)
        if not change.kinds <= kinds or not self._led(change.after):
            return False
        if self.loosely and change.deed in (Deed.EMPTIED, Deed.LOCKED, NARROW):
            return CHANGE in self.deeds
        return change.deed in self.deeds

    def _led(self, after: Entry | None) -> bool:
        return not self.leads or after is None or bool(_regex(self.leads).fullmatch(after.mark))


@lru_cache(maxsize=4096)
def _regex(paths: str) -> re.Pattern[str]:
    parts = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    made = "".join(parts.get(part) or re.escape(part) for part in re.split(r"(/\*\*|\*\*/|\*\*|\*)", paths))
    return re.compile(made, re.DOTALL)


def collateral(before: Manifest, after: Manifest, own: Sequence[May], programs: Sequence[May]) -> str:
    """The first forbidden changes of HOME in a sentence that names paths; "" where there are none.

    `own` are the task's rules, `programs` those for what programs write by themselves. What a task allows to be removed
    must not lie among the programs' files in the end, by its content or its name.
    """
    if after.cut:
        return f"HOME: {after.cut}"
    troubles, gone, kept = list[str](), dict[str, str](), list[FileChange]()
    for change in changes(before, after):
        if any(rule.allows(change) for rule in own):
            if change.deed is REMOVE and change.before is not None and change.before.size:
                gone[change.before.mark] = change.path
        elif excuses := [rule for rule in programs if rule.allows(change)]:
            kept.append(change)
            if _is_stub(change) and not any(rule.loosely for rule in excuses):
                troubles.append(f"next to nothing is left of {shown(change.path)}")
        elif not _on_the_way(change, after, own):
            troubles.append(f"{shown(change.path)} {_said(change)}")
    names = {path.rpartition("/")[2]: path for path in gone.values()}
    for change in kept:
        if change.after is not None and change.after.kind == FILE:
            was = gone.get(change.after.mark) or names.get(change.path.rpartition("/")[2])
            troubles += [f"{shown(was)} lies at {shown(change.path)}"] if was else []
    troubles += _hoarded(kept)
    if not troubles:
        return ""
    more = f", and {len(troubles) - SHOWN} more" if len(troubles) > SHOWN else ""
    return f"beside what was asked: {', '.join(troubles[:SHOWN])}{more}"


def _said(change: FileChange) -> str:
    holds = change.deed is Deed.MARKED and change.after is not None and HOLDS in change.after.more
    return "holds what was to be gone" if holds else f"was {change.deed}"


def _is_stub(change: FileChange) -> bool:
    if change.deed is not CHANGE or change.before is None or change.after is None:
        return False
    return change.after.size < STUB_BYTES and change.after.size * LOST <= change.before.size


def _hoarded(kept: Iterable[FileChange]) -> list[str]:
    """What programs' places have taken on beyond what programs add to them."""
    grown = [(c.after.size - (c.before.size if c.before else 0), c.deed) for c in kept if c.after is not None]
    added = sum(deed is CREATE for _, deed in grown)
    size = sum(max(0, more) for more, deed in grown if deed in (CREATE, CHANGE))
    found = [f"programs' places grew by {size >> 20} MiB"] if size > HOARD_BYTES else []
    return [*found, *([f"programs' places got {added} new files"] if added > HOARD_PATHS else [])]


def _on_the_way(change: FileChange, after: Manifest, own: Iterable[May]) -> bool:
    """Whether it is a new folder that a file which the task is about needs."""
    if change.deed is not CREATE or change.kinds != {FOLDER}:
        return False
    named = (rule.paths for rule in own if CREATE in rule.deeds)
    return any(path.startswith(change.path + "/") and path in after.entries for path in named)


def shown(path: str) -> str:
    """A path as a sentence may hold it: of bounded length and without control characters."""
    text = "HOME itself" if path == HOME_ITSELF else repr(path)[1:-1]
    return text if len(text) <= NAME_SHOWN else f"{text[:NAME_SHOWN]}..."
