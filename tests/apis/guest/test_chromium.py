"""Chromium: how it is started, its helper, what its pages hold, and visits in its history by a stand-in for it."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import apis.guest
from apis.guest.chromium import start as chromium_start

GUEST = Path(str(apis.guest.__file__)).parent

MAKES = """#!/usr/bin/env python3
import sqlite3, sys, time
from pathlib import Path
(folder,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--user-data-dir=")]
place = Path(folder, "Default")
place.mkdir()
with sqlite3.connect(place / "new") as database:
    database.execute("CREATE TABLE urls(id INTEGER PRIMARY KEY AUTOINCREMENT, url, title, "
                     "visit_count DEFAULT 0, typed_count DEFAULT 0, last_visit_time, hidden DEFAULT 0)")
    database.execute("CREATE TABLE visits(id INTEGER PRIMARY KEY AUTOINCREMENT, url, visit_time, from_visit, "
                     "transition DEFAULT 0, segment_id, visit_duration DEFAULT 0)")
(place / "new").rename(place / "History")
time.sleep(60)
"""
NEVER = "#!/bin/sh\nexec sleep 60\n"
# A Chromium that was killed before its tables were there.
HALF = MAKES.replace("TABLE visits", "TABLE other")
GARBAGE = MAKES.replace('(place / "new").rename', '(place / "new").write_text("no database")\n(place / "new").rename')
# One that was killed in a transaction: the file has a part of it, and only the journal can undo that.
BEGUN = """#!/usr/bin/env python3
import sqlite3, sys, time
from pathlib import Path
(folder,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--user-data-dir=")]
Path(folder, "Default").mkdir()
database = sqlite3.connect(Path(folder, "Default", "History"), isolation_level=None)
for line in ("PRAGMA cache_size = 1", "BEGIN", "CREATE TABLE urls(id, url)", "CREATE TABLE visits(id, url)"):
    database.execute(line)
for _ in range(100):
    database.execute("INSERT INTO urls(url) VALUES (?)", ("x" * 4000,))
time.sleep(60)
"""
LEAVES = """import subprocess
write = "import os, sys, time\\nwhile True: os.makedirs(f'{sys.argv[1]}/Default/{time.monotonic_ns()}')"
subprocess.Popen([sys.executable, "-c", write, folder])
"""


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    from apis.guest.chromium import profile as found

    monkeypatch.setattr(found, "running", lambda: False)
    monkeypatch.setattr(found.shutil, "which", lambda name: str(tmp_path / name))
    return found


def _program(folder: Path, text: str) -> None:
    (folder / "chromium").write_text(text)
    (folder / "chromium").chmod(0o755)


def test_each_address_knows_its_visits(visits: Any, tmp_path: Path) -> None:
    _program(tmp_path, MAKES)
    soon = time.monotonic() + 60
    before = time.time()
    visits.write([("https://a.org/", "New", 10.5), ("https://b.org/", "B", 0), ("https://a.org/", "Old", 3600)], soon)
    visits.write([("https://b.org/", "Later", 86_400)], soon)  # a profile that has a history keeps it
    place = tmp_path / "home" / visits.PLACE
    assert place.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(place)) as database:
        pages = database.execute("SELECT id, url, title, visit_count, typed_count, hidden FROM urls").fetchall()
        assert pages == [(1, "https://a.org/", "New", 2, 0, 0), (2, "https://b.org/", "B", 2, 0, 0)]
        rows = database.execute("SELECT url, visit_time, from_visit, transition, segment_id FROM visits").fetchall()
        assert [(row[0], *row[2:]) for row in rows] == [(n, 0, 0x30000000, 0) for n in (1, 2, 1, 2)]
        ago = [before + 11_644_473_600 - row[1] / 1e6 for row in rows]
        assert ago == pytest.approx([10.5, 0, 3600, 86_400], abs=20)
        assert database.execute("SELECT last_visit_time FROM urls").fetchall() == [(rows[0][1],), (rows[1][1],)]


def test_none_of_its_processes_stays(visits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, MAKES.replace('(place / "new").rename', f'{LEAVES}(place / "new").rename'))
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(visits.tempfile, "tempdir", str(tmp_path / "temp"))
    visits.write([("https://a.org/", "A", 0)], time.monotonic() + 20)
    temp, end = str(tmp_path / "temp"), time.monotonic() + 10
    while any(temp in word for one in psutil.process_iter(["cmdline"]) for word in one.info["cmdline"] or []):
        assert time.monotonic() < end, "it writes on"
        time.sleep(0.02)


@pytest.mark.parametrize("program", [HALF, GARBAGE, BEGUN])
def test_a_history_without_its_tables_is_refused(visits: Any, tmp_path: Path, program: str) -> None:
    _program(tmp_path, program)
    with pytest.raises(Exception, match="has not made its history in time"):
        visits.write([("https://a.org/", "A", 0)], time.monotonic() + 20)
    assert not (tmp_path / "home").exists()


def test_what_makes_no_history_is_ended_and_said(visits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, NEVER)
    with pytest.raises(Exception, match="has not made its history in time"):
        visits.write([("https://a.org/", "A", 0)], time.monotonic() + 0.1)
    assert not (tmp_path / "home").exists()
    monkeypatch.setattr(visits, "running", lambda: True)
    with pytest.raises(Exception, match="Chromium is running"):
        visits.write([("https://a.org/", "A", 0)], time.monotonic() + 0.1)


@given(st.lists(st.text(max_size=300), max_size=80))
def test_what_a_page_holds_is_said_in_bounded_whole_lines(lines: list[str]) -> None:
    from guest.chromium import link

    text = link.described("chrome://x/", lines)
    assert text.startswith("chrome://x/ is open")
    assert len(text) <= link.RESULT_CHARS
    assert max(map(len, text.split("\n"))) <= link.LINE_CHARS
    text.encode()
    assert len(text.split("\n")) <= 2 + len(lines)


def test_the_helper_has_the_name_that_is_asked_for() -> None:
    manifest = json.loads((GUEST / "chromium" / chromium_start.HELPER / "manifest.json").read_text())
    digest = hashlib.sha256(base64.b64decode(manifest["key"])).hexdigest()[:32]
    assert "".join(chr(ord("a") + int(digit, 16)) for digit in digest) == chromium_start.HELPER_ID
    assert manifest["manifest_version"] == 3
    assert not {"background", "content_scripts", "host_permissions"} & set(manifest)


def test_it_is_started_alike_by_an_action_and_by_hand() -> None:
    argv = chromium_start.command(["chromium", "--incognito", "file:///home/a b/x.html"], "/opt/helper")
    assert argv[0] == "chromium"
    assert argv[-2:] == ["--incognito", "file:///home/a b/x.html"]
    assigned, exported = chromium_start.wrapper("/opt/helper").splitlines()
    assert exported == "export CHROMIUM_FLAGS"
    (words,) = shlex.split(assigned)
    assert words.split()[1:] == argv[1:-2] == chromium_start.flags("/opt/helper")
    assert "--force-renderer-accessibility" in argv
    assert not any(flag.startswith("--no-sandbox") for flag in argv)
