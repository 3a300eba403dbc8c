"""Chromium's profile: waiting until it has written its bookmarks, and visits written before it starts.

The history's tables are made by the installed Chromium itself, in a folder of its own that goes again. A Chromium that
runs holds its history, so nothing is written next to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guest.chromium.link import Browser, failed, running, tabs_script
from guest.chromium.start import PROFILE, PROGRAMS

ROOTS = {"bookmark_bar": "bookmarks-bar", "other": "other"}  # in the file, and as the browser calls them
MOST_BYTES = 1 << 20
LOOK_S = 0.02


def wait_written(browser: Browser, until: float) -> None:
    """Until the profile's file holds the bookmarks that the browser shows. Raises Refused at `until`."""
    place = Path(os.environ["HOME"], PROFILE, "Default", "Bookmarks")
    while True:
        shown = browser.run(tabs_script("shownBookmarks"), until)
        if {name: shown.get(kind, []) for name, kind in ROOTS.items()} == _written(place):
            return
        if time.monotonic() + LOOK_S >= until:
            raise failed("Chromium has not written its bookmarks in time")
        time.sleep(LOOK_S)


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


Visit = tuple[str, str, float]  # address, title, seconds ago

PLACE = f"{PROFILE}/Default/History"
EPOCH_S = 11_644_473_600  # from 1601, where Chromium's clock begins, to 1970
FOLLOWED = 0x30000000  # a link was followed, and the visit both begins and ends its chain of redirects
END_S = 5.0  # of a Chromium that was asked to end


def write(visits: Sequence[Visit], until: float) -> None:
    """Add `visits` to the history. Raises Refused where Chromium runs, or has not made a history by `until`."""
    if running():
        raise failed("Chromium is running: its history is written before it starts")
    place = Path(os.environ["HOME"], PLACE)
    if not place.exists():
        _make(place, until)
    try:
        with contextlib.closing(sqlite3.connect(place)) as database, database:
            _add(database, visits, time.time())
    except sqlite3.Error as error:
        raise failed(f"Chromium's history can't be written: {error}") from error


def _make(place: Path, until: float) -> None:
    """Let Chromium make an empty history without a window, and put it at `place`."""
    program = next(filter(None, map(shutil.which, sorted(PROGRAMS))), None)
    if program is None:
        raise failed("Chromium is not installed")
    # What was killed may write for a moment more.
    with tempfile.TemporaryDirectory(prefix="history-", ignore_cleanup_errors=True) as folder:
        made = Path(folder, "Default", "History")
        started = subprocess.Popen(
            [program, "--headless", f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while not _filled(made) and started.poll() is None and time.monotonic() < until:
                time.sleep(LOOK_S)
            started.terminate()  # it writes what it has begun, and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it and all others have ended
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        if not _filled(made) or not _has_tables(made):
            raise failed("Chromium has not made its history in time")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, place)
    place.chmod(0o600)


def _filled(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _has_tables(file: Path) -> bool:
    """Whether the history is whole; what a killed Chromium had begun to write to it is undone first."""
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE name IN ('urls', 'visits')").fetchall()
    except sqlite3.Error:
        return False
    return len(tables) == 2


def _add(database: sqlite3.Connection, visits: Sequence[Visit], now_s: float) -> None:
    """A row for each visit, and one for each address, which knows how often and when last it was visited."""
    for url, title, ago_s in visits:
        at = round((now_s - ago_s + EPOCH_S) * 1e6)
        known = database.execute("SELECT id, last_visit_time FROM urls WHERE url = ?", (url,)).fetchone()
        if known is None:
            added = "INSERT INTO urls (url, title, visit_count, last_visit_time) VALUES (?, ?, 1, ?)"
            number = database.execute(added, (url, title, at)).lastrowid
        else:
            number, last = known
            database.execute("UPDATE urls SET visit_count = visit_count + 1 WHERE id = ?", (number,))
            if at > last:
                newer = "UPDATE urls SET title = ?, last_visit_time = ? WHERE id = ?"
                database.execute(newer, (title, at, number))
        visit = "INSERT INTO visits (url, visit_time, from_visit, transition, segment_id) VALUES (?, ?, 0, ?, 0)"
        database.execute(visit, (number, at, FOLLOWED))
