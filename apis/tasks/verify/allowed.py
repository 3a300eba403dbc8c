"""What an episode may change in a HOME, and what it did change beside that.

Invariant: pure. A path that no rule names must be what it was. No rule lets a file become empty, or change its kind or
permissions. No rule lets it turn up again under a program's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from apis.tasks.verify.manifest import FILE, FOLDER, LINK, Deed, FileChange, Manifest, changes

SHOWN = 3  # paths in a reason
NAME_SHOWN = 120  # characters of one
CREATE, CHANGE, REMOVE = Deed.CREATED, Deed.CHANGED, Deed.REMOVED


@dataclass(frozen=True)
class May:
    """What may become of the paths below HOME that match `paths`.

    In `paths`, * stands for a part of a name and ** for any number of names. A rule for "**" of a folder is one for the
    folder itself, too. `loosely`: the file may also become empty or have other permissions, and links are files.
    """

    paths: str
    deeds: tuple[Deed, ...]
    loosely: bool = False
    but: str = ""  # beside these

    def allows(self, change: FileChange) -> bool:
        """Whether this rule is about such a change."""
        if not _regex(self.paths).fullmatch(change.path) or _regex(self.but).fullmatch(change.path):
            return False
        if not change.kinds <= ({FILE, FOLDER, LINK} if self.loosely else {FILE, FOLDER}):
            return False
        if self.loosely and change.deed in (Deed.EMPTIED, Deed.LOCKED):
            return CHANGE in self.deeds
        return change.deed in self.deeds


@lru_cache(maxsize=4096)
def _regex(paths: str) -> re.Pattern[str]:
    parts = {"/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    made = "".join(parts.get(part) or re.escape(part) for part in re.split(r"(/\*\*|\*\*/|\*\*|\*)", paths))
    return re.compile(made, re.DOTALL)


def collateral(before: Manifest, after: Manifest, own: Sequence[May], programs: Sequence[May]) -> str:
    """What is not as it should be, in words that name paths; "" when all is.

    `own` are the task's rules, `programs` those for what programs write by themselves. What was removed, as its task
    allows, must not lie among the programs' files in the end, told by its content or its name.
    """
    if after.cut:
        return f"HOME: {after.cut}"
    troubles, gone, kept = list[str](), dict[str, str](), list[FileChange]()
    for change in changes(before, after):
        if any(rule.allows(change) for rule in own):
            if change.deed is REMOVE and change.before is not None and change.before.size:
                gone[change.before.mark] = change.path
        elif any(rule.allows(change) for rule in programs):
            kept.append(change)
        elif not _on_the_way(change, after, own):
            troubles.append(f"{shown(change.path)} was {change.deed}")
    names = {path.rpartition("/")[2]: path for path in gone.values()}
    for change in kept:
        if change.after is not None and change.after.kind == FILE:
            was = gone.get(change.after.mark) or names.get(change.path.rpartition("/")[2])
            troubles += [f"{shown(was)} lies at {shown(change.path)}"] if was else []
    if not troubles:
        return ""
    more = f", and {len(troubles) - SHOWN} more" if len(troubles) > SHOWN else ""
    return f"beside what was asked: {', '.join(troubles[:SHOWN])}{more}"


def _on_the_way(change: FileChange, after: Manifest, own: Iterable[May]) -> bool:
    """Whether it is a new folder that a file which the task is about needs."""
    if change.deed is not CREATE or change.kinds != {FOLDER}:
        return False
    named = (rule.paths for rule in own if CREATE in rule.deeds)
    return any(path.startswith(change.path + "/") and path in after.entries for path in named)


def shown(path: str) -> str:
    """A path as a sentence may hold it: of bounded length and without control characters."""
    text = repr(path)[1:-1]
    return text if len(text) <= NAME_SHOWN else f"{text[:NAME_SHOWN]}..."
