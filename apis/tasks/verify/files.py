"""Checks of folders, and of files by their bytes. Invariant: like `verify`, pure functions."""

from __future__ import annotations

import hashlib
from typing import Any

from apis.tasks.verify.verify import FileView, TaskVerdict

SHOWN = 5  # names in a reason


def folder_holds(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The folder's entries are exactly `expected` (folders end in "/"), hidden ones included."""
    if view.kind != "folder":
        return TaskVerdict(False, view.reason or f"it is {view.kind}, not a folder")
    wanted, there = set(rules["expected"]), set(view.names)
    if wanted == there:
        return TaskVerdict(True, "it holds what it should")
    parts = [("lacks", wanted - there), ("should not hold", there - wanted)]
    said = [f"{verb} {', '.join(map(repr, sorted(names)[:SHOWN]))}" for verb, names in parts if names]
    return TaskVerdict(False, f"it {' and '.join(said)}")


def digest_of(data: bytes) -> str:
    """What `file_bytes_are` knows a file's content by: blake2b-128 in hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def file_bytes_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> TaskVerdict:
    """The file's content has the digest `expected`."""
    if view.kind != "file":
        return TaskVerdict(False, view.reason or f"it is {view.kind}")
    same = digest_of(view.data) == rules["expected"]
    return TaskVerdict(same, "it holds what it should" if same else "it holds something else")
