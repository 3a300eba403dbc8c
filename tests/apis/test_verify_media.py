"""The checks of bookmarks, playlists, settings and extensions: what is wanted is accepted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apis.tasks.families import vlc, web
from apis.tasks.families.code_extension import _is_object
from apis.tasks.verify import bookmarks, media
from apis.tasks.verify.media import (
    LIST_BYTES,
    MOST_BYTES,
    bookmarks_are,
    extensions_are,
    listed_extension,
    playlist_is,
    settings_are,
)
from apis.tasks.verify.verify import GUEST_HOME, FileView, digest_of, file_bytes_are

NAMES = st.text("abc ", min_size=1, max_size=3)
MARKS = st.lists(st.tuples(st.sampled_from(["", "plum", "kiwi"]), NAMES, st.sampled_from(["Documents/a", "b"])))
ENTRIES = st.lists(st.sampled_from(["Music/a.wav", "Music/b.wav", "Music/c.wav"]), max_size=4)
CHROMIUMS = Path(__file__).with_name("bookmarks_of_chromium.json").read_bytes()  # as Chromium 156 wrote it
ONE = [("", "Plum", "Documents/plum.html")]


def text(content: str) -> FileView:
    return FileView("file", content.encode())


def marked(marks: list[tuple[str, str, str]], expected: list[Any]) -> bool:
    return bookmarks_are(web.written(marks, GUEST_HOME)[web.BOOKMARKS], {"expected": expected}, {}).success


@given(MARKS, MARKS)
def test_bookmarks_count_with_folder_title_and_page_in_any_order(marks: Any, others: Any) -> None:
    assert marked(marks, json.loads(json.dumps(marks[::-1])))
    assume(sorted(marks) != sorted(others))
    assert not marked(marks, others)


@pytest.mark.parametrize(
    "url", ["file:///tmp/Documents/plum.html", "http://home/agent/Documents/plum.html", "file:///home/agent/plum.html"]
)
def test_a_bookmark_of_a_page_elsewhere_is_not_accepted(url: str) -> None:
    other = FileView("file", bookmarks.written([("", "Plum", url)]))
    assert bookmarks_are(other, {"expected": ONE}, {}).reason == "a bookmark is of another page"


@pytest.mark.parametrize("home", [GUEST_HOME, "/tmp/computerrl-1/home"])
def test_pages_and_files_lie_below_the_desktops_own_home(home: str) -> None:
    marks = msgspec.structs.replace(web.written(ONE, home)[web.BOOKMARKS], home="/tmp/computerrl-1/home")
    playlist = FileView("file", f"#EXTM3U\n#EXTINF:1,a\n{home}/Music/a.wav\n".encode(), home="/tmp/computerrl-1/home")
    assert bookmarks_are(marks, {"expected": ONE}, {}).success == (home != GUEST_HOME)
    assert playlist_is(playlist, {"expected": ["Music/a.wav"]}, {}).success == (home != GUEST_HOME)


WRITTEN = bookmarks.written([("", "Plum <\u00e9\u6f22\U0001f600", "file:///a"), ("kiwi", "b", "http://b/?q=%20")])


def test_bookmarks_that_chromium_wrote_are_read() -> None:
    assert bookmarks.read(WRITTEN) == [
        ("", "Plum <\u00e9\u6f22\U0001f600", "file:///a"),
        ("kiwi", "b", "http://b/?q=%20"),
    ]
    data = json.loads(CHROMIUMS)
    assert data["checksum"] == "c316ea5abf52bdea9000b4a17e9cb02a"
    assert bookmarks.read(CHROMIUMS) == [
        ("helmet", "Willow", "file:///home/agent/Documents/sleat.html"),
        ("helmet", "Zetom jasmine", "file:///home/agent/Documents/doojak.html"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"name": "b"', '"name": "c"', "checksum"),
        ('"url": "file:///a"', '"url": "file:///b"', "checksum"),
        ('"id": "4"', '"id": "7"', "checksum"),
        ('"id": "4"', '"id": "5"', "two of its"),
        ('"id": "4"', '"id": "four"', "not as Chromium"),
        ("0bc5d13f", "0bc5d140", "folders are not"),
        ('"version": 1', '"version": 2', "folders are not"),
        ("   ", "  ", "laid out"),
        (": ", ":", "laid out"),
        ('"version": 1', '"version": 1, "more": 1', "no file"),
        ('"version": 1', '"version": 1, "version": 1', "laid out"),
    ],
)
def test_bookmarks_that_another_wrote_are_told(old: str, new: str, says: str) -> None:
    assert old in WRITTEN.decode()
    verdict = bookmarks_are(FileView("file", WRITTEN.decode().replace(old, new).encode()), {"expected": ONE}, {})
    assert says in verdict.reason


def test_an_empty_folder_is_a_bookmark_too_many() -> None:
    data = bookmarks.written([("", "Plum", f"file://{GUEST_HOME}/Documents/plum.html"), ("new", "x", "y")])
    roots = json.loads(data)["roots"]
    assert [mark for mark in bookmarks.read(data) if mark[0]] == [("new", "x", "y")]
    assert roots["other"]["children"][0]["name"] == "new"
    verdict = bookmarks_are(FileView("file", data), {"expected": ONE}, {})
    assert verdict.reason == "it holds 2 bookmarks where 1 are wanted"


def _nested(depth: int) -> str:
    inner = '{"name": "", "type": "folder", "children": ['
    return (
        '{"roots": {"other": {"name": "", "type": "folder"}, "synced": {"name": "", "type": "folder"}, '
        f'"bookmark_bar": {inner * depth}{"]}" * depth}}}}}'
    )


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"roots": {"other": []}}', "9" * 99, _nested(30), _nested(5000)])
def test_what_is_no_file_of_bookmarks_is_a_failure_with_its_reason(content: str) -> None:
    verdict = bookmarks_are(text(content), {"expected": []}, {})
    assert (verdict.success, verdict.reason) == (False, "it is no file of bookmarks")


@pytest.mark.parametrize("check", [bookmarks_are, playlist_is, settings_are])
def test_a_file_beyond_its_bound_is_not_looked_at(check: Any) -> None:
    verdict = check(FileView("file", b"#" * (MOST_BYTES + 1)), {"expected": {}}, {})
    assert (verdict.success, verdict.reason) == (False, f"it has more than {MOST_BYTES} bytes")


@given(ENTRIES, ENTRIES)
def test_a_playlist_counts_with_its_order(entries: list[str], others: list[str]) -> None:
    names = [entry.removeprefix("Music/") for entry in entries]
    view = vlc.written("x.m3u", names)["Music/x.m3u"]
    assert playlist_is(view, {"expected": entries}, {}).success
    assert playlist_is(view, {"expected": others}, {}).success == (entries == others)


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        ("a.wav", True),
        ("%61.wav", True),
        ("/home/agent/Music/a.wav", True),
        ("file:///home/agent/Music/a.wav", True),
        ("file:///home/agent/Music/%61.wav", True),
        ("/tmp/Music/a.wav", False),
        ("../a.wav", False),
        ("b.wav", False),
    ],
)
def test_an_entry_is_told_by_name_or_by_path(entry: str, good: bool) -> None:
    assert playlist_is(text(f"#EXTM3U\n#EXTINF:1,a\n{entry}\n"), {"expected": ["Music/a.wav"]}, {}).success == good


@pytest.mark.parametrize(
    "content",
    ["", "a.wav\n", "#EXTM3U\na.wav\n", "#EXTM3U\n#EXTINF:1,a\na.wav", "#EXTM3U\n#EXTINF:a,a\na.wav\n",
     "#EXTM3U\n#EXTINF:1,a\na.wav\n\n", "#EXTM3U\n\n#EXTINF:1,a\na.wav\n", "#EXTM3U\n#EXTINF:1,a\n#a.wav\n"],
)  # fmt: skip
def test_a_playlist_that_another_wrote_is_told(content: str) -> None:
    verdict = playlist_is(text(content), {"expected": ["Music/a.wav"]}, {})
    assert verdict.reason == "it is not as VLC writes a playlist"


def test_settings_count_in_the_whole_file_that_vlc_writes() -> None:
    wanted = {"expected": {"sub-language": "kiwi", "audio-language": ""}}
    good = media.written_settings({"sub-language": "kiwi", "audio-language": ""})
    assert settings_are(text(good), wanted, {}).success
    assert settings_are(text(good.replace("audio-language=", "#audio-language=any")), wanted, {}).success
    for line in ("sub-language=kiwi\n", "\nsub-language=kiwi\n\n", "# Text (string)\nsub-language=kiwi\n\n"):
        for bad in (line, good + line, good.replace("sub-language=kiwi", "#sub-language=") + line):
            assert not settings_are(text(bad), wanted, {}).success, bad[-80:]
    for changed in (
        media.written_settings({"sub-language": "kiwis", "audio-language": ""}),
        media.written_settings({"sub-language": "kiwi", "audio-language": "plum"}),
        media.written_settings({"audio-language": ""}),
        good.replace("###  vlc", "###  mine"),
        good[: len(good) // 2],
        good.replace("# Text (integer)\n", ""),
    ):
        assert not settings_are(text(changed), wanted, {}).success


def of(*extensions: str, home: str = GUEST_HOME) -> bytes:
    """A list as the editor writes it."""
    parts = (extension.split("@") for extension in extensions)
    return json.dumps([listed_extension(name, version, home) for name, version in parts]).encode()


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (of("A.fox@1.0.0", "b.hen@1.0.0"), True),
        (of("b.hen@1.0.0", "a.fox@1.0.0"), True),
        (of("a.fox@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.1"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "c.cow@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", "b.hen@1.0.0"), False),
        (of("a.fox@1.0.0", "b.hen@1.0.0", home="/tmp"), False),
        (b'[{"identifier": "a.fox", "version": 1}]', False),
        (b'[{"identifier":{"id":"a.fox"},"version":"1.0.0"},{"identifier":{"id":"b.hen"},"version":"1.0.0"}]', False),
        (b"[" * 5000, False),
        (of("a.fox@1.0.0", "b.hen@1.0.0") + b" " * LIST_BYTES, False),
    ],
)
def test_exactly_the_extensions_that_are_wanted(data: bytes, good: bool) -> None:
    expected = {"expected": ["a.fox@1.0.0", "b.hen@1.0.0"]}
    assert extensions_are(FileView("file", data), expected, {}).success is good


def test_one_byte_more_is_another_file() -> None:
    expected = {"expected": digest_of(b"\xff\0")}
    assert file_bytes_are(FileView("file", b"\xff\0"), expected, {}).success
    assert not file_bytes_are(FileView("file", b"\xff\0\0"), expected, {}).success
    assert not file_bytes_are(FileView("missing"), expected, {}).success


def test_a_file_that_is_nested_without_end_is_no_object() -> None:
    assert not _is_object(FileView(kind="file", data=b'{"a": ' * 2000))
