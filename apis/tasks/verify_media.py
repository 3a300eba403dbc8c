"""Checks of what Chromium and VLC write: bookmarks, playlists and settings.

Invariant: strict and bounded. A file larger than its bound or of another form is a failure with its reason; everything
in it that a task is about is compared, so one bookmark or entry too many is a failure too, and so is a change of
another setting that tasks are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import msgspec

from apis.tasks.verify import FileView, Verdict, bounded

MOST_BYTES = 1 << 18  # VLC's file of settings has 90 kB
MOST_DEPTH = 20  # of folders of bookmarks
_SETTING = re.compile(r"^([a-z0-9][a-z0-9_-]*)=(.*)$", re.MULTILINE)


class _Mark(msgspec.Struct):
    """A bookmark, or a folder of them, as Chromium writes it; what else it writes is left out."""

    name: str
    type: str
    url: str = ""
    children: list[_Mark] = []


class _Roots(msgspec.Struct):
    bookmark_bar: _Mark
    other: _Mark
    synced: _Mark


class _Bookmarks(msgspec.Struct):
    roots: _Roots


def bookmarks_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> Verdict:
    """The profile's bookmarks are `expected`, in any order: [folder, title, path of the page below HOME] each.

    The folder of one that lies in none is ""; in which of Chromium's own folders it lies is the same.
    """
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return Verdict(False, trouble)
    try:
        roots = msgspec.json.decode(data, type=_Bookmarks).roots
        found = sorted(mark for root in (roots.bookmark_bar, roots.other, roots.synced) for mark in _marks(root))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Verdict(False, "it is no file of bookmarks")
    wanted = sorted((folder, title, path) for folder, title, path in rules["expected"])
    if len(found) != len(wanted):
        return Verdict(False, f"it holds {len(found)} bookmarks where {len(wanted)} are wanted")
    for (folder, title, url), (in_folder, called, path) in zip(found, wanted, strict=True):
        if (folder, title) != (in_folder, called):
            return Verdict(False, "a bookmark has another title or lies in another folder")
        if not _is_at(unquote(url), path, view.home):
            return Verdict(False, "a bookmark is of another page")
    return Verdict(True, "it holds the bookmarks that it should")


def _marks(root: _Mark, folder: str = "", depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Folder, title and address of each bookmark below `root`; an empty folder counts as one without an address."""
    if depth > MOST_DEPTH:
        raise RecursionError
    for mark in root.children:
        if mark.type == "url":
            yield folder, mark.name, mark.url
        elif mark.children:
            yield from _marks(mark, f"{folder}/{mark.name}" if folder else mark.name, depth + 1)
        else:
            yield folder, mark.name, ""


def playlist_is(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> Verdict:
    """The M3U file's entries are `expected`, in this order: paths below HOME of files that lie beside it."""
    text, trouble = _text(view)
    if text is None:
        return Verdict(False, trouble)
    found = [unquote(line.strip()) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    wanted = [str(path) for path in rules["expected"]]
    if len(found) != len(wanted):
        return Verdict(False, f"it has {len(found)} entries where {len(wanted)} are wanted")
    for number, (entry, path) in enumerate(zip(found, wanted, strict=True), 1):
        if entry != path.rpartition("/")[2] and not _is_at(entry, path, view.home):
            return Verdict(False, f"entry {number} is another file")
    return Verdict(True, "it lists what it should")


def settings_are(view: FileView, rules: dict[str, Any], _: dict[str, Any]) -> Verdict:
    """The settings of `expected`, by name, have these values; "" stands for one that is as it was at first.

    Lines are name=value; one with a # in front tells a default; of several lines for one name the last counts.
    """
    text, trouble = _text(view)
    if text is None:
        return Verdict(False, trouble)
    found = dict(_SETTING.findall(text))
    for name, value in dict(rules["expected"]).items():
        if found.get(name, "") != value:
            return Verdict(False, f"{name} has another value")
    return Verdict(True, "the settings are as they should be")


def _is_at(address: str, path: str, home: str) -> bool:
    """Whether a path or a file:// address leads to `path` below HOME."""
    return address.removeprefix("file://") == f"{home}/{path}"


def _text(view: FileView) -> tuple[str | None, str]:
    data, trouble = bounded(view, MOST_BYTES)
    if data is None:
        return None, trouble
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return None, "it is not UTF-8 text"
