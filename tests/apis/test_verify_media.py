"""The checks of bookmarks, playlists and settings: what is wanted is accepted, and nothing more, less or other."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apis.tasks.families import music, web
from apis.tasks.verify import GUEST_HOME, FileView
from apis.tasks.verify_media import MOST_BYTES, bookmarks_are, playlist_is, settings_are

NAMES = st.text("abc ", min_size=1, max_size=3)
MARKS = st.lists(st.tuples(st.sampled_from(["", "plum", "kiwi"]), NAMES, st.sampled_from(["Documents/a", "b"])))
ENTRIES = st.lists(st.sampled_from(["Music/a.wav", "Music/b.wav", "Music/c.wav"]), max_size=4)
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
    data = web.written(ONE, GUEST_HOME)[web.BOOKMARKS].data.decode()
    other = text(data.replace(f"file://{GUEST_HOME}/Documents/plum.html", url))
    assert not bookmarks_are(other, {"expected": ONE}, {}).success


@pytest.mark.parametrize("home", [GUEST_HOME, "/tmp/computerrl-1/home"])
def test_pages_and_files_lie_below_the_desktops_own_home(home: str) -> None:
    bookmarks = msgspec.structs.replace(web.written(ONE, home)[web.BOOKMARKS], home="/tmp/computerrl-1/home")
    playlist = FileView("file", f"{home}/Music/a.wav\n".encode(), home="/tmp/computerrl-1/home")
    assert bookmarks_are(bookmarks, {"expected": ONE}, {}).success == (home != GUEST_HOME)
    assert playlist_is(playlist, {"expected": ["Music/a.wav"]}, {}).success == (home != GUEST_HOME)


def test_an_empty_folder_is_a_bookmark_too_many() -> None:
    roots = json.loads(web.written(ONE, GUEST_HOME)[web.BOOKMARKS].data)
    roots["roots"]["other"]["children"].append({"name": "new", "type": "folder", "children": []})
    verdict = bookmarks_are(text(json.dumps(roots)), {"expected": ONE}, {})
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
    view = music.written("x.m3u", names)["Music/x.m3u"]
    assert playlist_is(view, {"expected": entries}, {}).success
    assert playlist_is(view, {"expected": others}, {}).success == (entries == others)


@pytest.mark.parametrize(
    ("entry", "good"),
    [
        ("a.wav", True),
        ("/home/agent/Music/a.wav", True),
        ("file:///home/agent/Music/a.wav", True),
        ("file:///home/agent/Music/%61.wav", True),
        ("/tmp/Music/a.wav", False),
        ("../a.wav", False),
        ("b.wav", False),
    ],
)
def test_an_entry_is_told_by_name_or_by_path(entry: str, good: bool) -> None:
    assert playlist_is(text(f"#EXTM3U\n{entry}\n"), {"expected": ["Music/a.wav"]}, {}).success == good


def test_settings_are_lines_of_which_the_last_counts() -> None:
    wanted = {"expected": {"sub-language": "kiwi", "audio-language": ""}}
    for good in ("sub-language=kiwi\n", "\ufeff#audio-language=\nsub-language=plum\nsub-language=kiwi\nx=1\n"):
        assert settings_are(text(good), wanted, {}).success
    for bad in ("", "#sub-language=kiwi\n", "sub-language=kiwis\n", "sub-language=kiwi\naudio-language=plum\n"):
        assert not settings_are(text(bad), wanted, {}).success
