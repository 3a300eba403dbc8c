"""VLC's file of settings, and files below HOME, without VLC."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import apis.guest

FOLDER = Path(str(apis.guest.__file__)).parent


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME, and the guest's modules under their own name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def start(home: Path) -> Any:
    from apis.guest.vlc import start as vlc_start

    return vlc_start


def test_settings_take_the_place_of_older_ones_and_leave_the_rest(home: Path, start: Any) -> None:
    file = start.config_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(b"# comment \xff\n[qt]\n#qt-max-volume=125\nloop=0\n[core]\n")
    start.write_settings({"qt-max-volume": "200", "repeat": "1"})
    start.write_settings({"loop": "1"})
    assert file.read_bytes() == b"# comment \xff\n[qt]\nqt-max-volume=200\nloop=1\n[core]\nrepeat=1\n"
    assert start.changed_settings() == {"qt-max-volume": "200", "loop": "1", "repeat": "1"}
    assert [path.name for path in file.parent.iterdir()] == ["vlcrc"]


WHOLE = "\ufeff###\n###  vlc 3\n###\n\n[core]\n\n# Loop (boolean)\n#loop=0\n\n# Repeat (boolean)\n#repeat=0\n\n"


def test_what_is_put_into_vlcs_file_stands_among_all_that_vlc_writes(
    home: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vlc = home / "vlc"
    vlc.write_text(f"#!/bin/sh\nprintf %s '{WHOLE}' > \"$4\"\necho once >> {home}/ran\n")
    vlc.chmod(0o755)
    monkeypatch.setenv("PATH", str(home), prepend=":")
    start.write_settings({"loop": "1", "unknown-here": "1"})
    for value in ("1", "2"):
        start.complete()
        start.write_settings({"repeat": value})
    text = start.config_file().read_text()
    assert text == WHOLE.replace("#loop=0", "loop=1").replace("#repeat=0", "repeat=2")
    assert (home / "ran").read_text() == "once\n"
    assert [path.name for path in start.config_file().parent.iterdir()] == ["vlcrc"]


def test_a_vlc_that_writes_nothing_changes_nothing(home: Path, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "vlc").write_text("#!/bin/sh\nexit 1\n")
    (home / "vlc").chmod(0o755)
    monkeypatch.setenv("PATH", str(home), prepend=":")
    start.write_settings({"loop": "1"})
    with pytest.raises(subprocess.SubprocessError):
        start.complete()
    assert start.config_file().read_text() == "loop=1\n"
    assert [path.name for path in start.config_file().parent.iterdir()] == ["vlcrc"]


def test_every_start_of_a_session_listens_alike_and_no_two_sessions_do(
    home: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start.changed_settings() == {}
    start.prepare()
    flags = start.reachable(["vlc", "a.mp3"])
    assert flags[0] == "vlc"
    assert flags[-1] == "a.mp3"
    told = start.changed_settings()
    assert flags[1:-1] == [f"--{name}={value}" for name, value in told.items()]
    assert told["http-host"] == "127.0.0.1"
    assert (Path(told["http-src"]) / "agent.json").is_file()
    place = home / "vlc.json"
    assert place.stat().st_mode & 0o777 == 0o600
    assert json.loads(place.read_text()) == [int(told["http-port"]), told["http-password"]]
    other = home / "other"
    other.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    assert start.access()[1] != told["http-password"]
    assert len(told["http-password"]) == 32


def test_paths_that_lead_out_of_home_are_refused(home: Path) -> None:
    from apis.guest import files as paths

    (home / "Music").mkdir()
    (home / "Music" / "a b.mp3").write_bytes(b"")
    os.symlink("/etc", home / "out")
    os.symlink("/etc/passwd", home / "Music" / "link.mp3")
    os.mkfifo(home / "Music" / "pipe.mp3")
    full = paths.there_in_home("~/Music/a b.mp3", "uri")
    assert paths.path_of(paths.url_of(full)) == full
    assert paths.path_of("file://localhost/a%20b") == "/a b"
    assert paths.path_of("~/Music/a%20b.mp3") == "~/Music/a%20b.mp3", "a file may have this very name"
    assert paths.short(full) == "~/Music/a b.mp3"
    assert paths.folder_in_home("Music", "path") == str(home / "Music")
    assert paths.any_in_home("~", "value") == str(home)
    assert paths.any_in_home("~/Music/new.log", "value") == str(home / "Music" / "new.log")
    for wrong in ("/etc/passwd", "out/passwd", "Music/link.mp3", "Music/pipe.mp3", "~/nothing/a", "Music", "../x"):
        with pytest.raises(Exception, match=r"^uri: "):
            paths.there_in_home(wrong, "uri")
    assert paths.to_write("Music/new.mp3", "file_path") == str(home / "Music" / "new.mp3")
    for wrong in ("/", "out", "..", "Music/a b.mp3", "/etc"):
        with pytest.raises(Exception, match=r"^path: "):
            paths.folder_in_home(wrong, "path")


def test_files_of_a_folder_that_holds_too_many_are_listed_as_far_as_it_was_looked_at(home: Path) -> None:
    from apis.guest import files as paths

    for n in range(paths.FILES + 1):
        (home / f"{n:05d}.mp3").touch()
    (home / "z").mkdir()
    (home / "z" / "late.mp3").touch()
    found, cut = paths.with_endings(str(home), {"mp3"})
    assert (len(found), cut) == (paths.FILES, True)
    assert found[0] == str(home / "00000.mp3")
