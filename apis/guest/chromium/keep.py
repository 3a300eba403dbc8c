"""Waiting until Chromium has written its bookmarks, which it does some seconds after a change.

Invariant: only waits, and never beyond `until`; what it finds decides nothing but how long that is.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import struct
import time
from pathlib import Path
from typing import Any

from guest.chromium.link import Browser, failed
from guest.chromium.start import PROFILE

FOLDER, NAME = f"{PROFILE}/Default", "Bookmarks"
ROOTS = {"bookmark_bar": "bookmarks-bar", "other": "other"}  # in the file, and as the browser calls them
IN_MOVED_TO = 0x80  # Chromium writes another file and gives it this name
MOST_BYTES = 1 << 20
EVENTS_BYTES = 1 << 16
_SHOWN = """(async () => {
  const strip = mark => mark.url === undefined
    ? [mark.title, mark.children.map(strip)] : [mark.title, mark.url];
  const roots = (await chrome.bookmarks.getTree())[0].children;
  return Object.fromEntries(roots.map(root => [root.folderType, root.children.map(strip)]));
})()"""


def wait_written(browser: Browser, until: float) -> None:
    """Until the profile's file holds the bookmarks that the browser shows. Raises Refused at `until`."""
    place = Path(os.environ["HOME"], FOLDER, NAME)
    with _Watch(str(place.parent)) as watch:
        while True:
            shown = browser.run(_SHOWN, until)
            if {name: shown.get(kind, []) for name, kind in ROOTS.items()} == _written(place):
                return
            if not watch.wait(NAME.encode(), until):
                raise failed("Chromium has not written its bookmarks in time")


def _written(place: Path) -> dict[str, Any]:
    """The file's bookmarks by root: [title, address] each, and [title, its bookmarks] of a folder."""
    try:
        with place.open("rb") as file:
            roots = json.loads(file.read(MOST_BYTES))["roots"]
        return {name: [_strip(mark) for mark in roots[name]["children"]] for name in ROOTS}
    except FileNotFoundError:
        return {name: [] for name in ROOTS}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise failed(f"Chromium's file of bookmarks can't be read: {type(error).__name__}") from error


def _strip(mark: dict[str, Any]) -> list[Any]:
    return [mark["name"], mark["url"] if mark["type"] == "url" else [_strip(each) for each in mark["children"]]]


class _Watch:
    """Names that files get in a folder, by inotify(7)."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> _Watch:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise failed(f"inotify: {os.strerror(ctypes.get_errno())}")
        if libc.inotify_add_watch(self._fd, os.fsencode(self._folder), IN_MOVED_TO) < 0:
            os.close(self._fd)
            raise failed(f"{self._folder}: {os.strerror(ctypes.get_errno())}")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def wait(self, name: bytes, until: float) -> bool:
        """Whether a file got this name before `until`."""
        while (left := until - time.monotonic()) > 0:
            if select.select([self._fd], [], [], left)[0] and name in _names(os.read(self._fd, EVENTS_BYTES)):
                return True
        return False


def _names(data: bytes) -> list[bytes]:
    """The names in a sequence of `struct inotify_event`."""
    found, at = [], 0
    while at < len(data):
        *_, length = struct.unpack_from("iIII", data, at)
        at += struct.calcsize("iIII")
        found.append(data[at : at + length].rstrip(b"\0"))
        at += length
    return found
