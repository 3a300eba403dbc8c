"""Twins of metrics of browsers, their databases and a player's state: each has a right result and near misses."""

from __future__ import annotations

from tests.apis.twins.general import BAR, PAGES
from tests.apis.twins.twin import Twin, database, status

TWINS = [
    Twin(
        "is_expected_active_tab",
        {"type": "url", "url": "https://a.org/b"},
        {},
        {"url": "https://www.a.org/b"},
        [
            {"url": "http://www.a.org/b/"},
            {"url": "https://a.org/b/c"},
            {"url": "https://a.com/b"},
            {"url": "https://b.org/b"},
            {"url": "chrome://newtab"},
        ],
    ),
    Twin(
        "is_expected_url_pattern_match",
        {"expected": ["a\\?x=", "y=2"]},
        {},
        "https://a?x=1&y=2",
        ["https://a?x=1", "https://a?y=2", ""],
    ),
    Twin(
        "is_expected_search_query",
        {"expect": {"pattern": "q=tea(&|$)"}},
        {},
        {"url": "https://x/s?q=tea"},
        [{"url": "https://x/s?q=teas"}, {"url": "https://x/s?q=te"}, {"url": ""}],
    ),
    Twin(
        "is_expected_tabs",
        {"type": "url", "urls": ["https://a.org", "https://b.org/x"]},
        {},
        [{"url": "https://b.org/x"}, {"url": "https://a.org/"}],
        [
            [{"url": "https://b.org/x/"}, {"url": "https://a.org/"}],
            [{"url": "https://a.org"}],
            [{"url": "https://a.org"}] * 2,
            [],
        ],
    ),
    Twin(
        "is_expected_bookmarks",
        PAGES,
        {},
        BAR,
        [
            {"bookmark_bar": {"children": [{"type": "url", "url": "https://a.org/b/"}]}},
            {"bookmark_bar": {"children": [{"type": "url", "url": "https://a.org/c"}]}},
            {"other": BAR["bookmark_bar"]},
            {"bookmark_bar": {"children": []}},
        ],
    ),
    Twin(
        "is_cookie_deleted",
        {"type": "domains", "domains": [".a.org"]},
        {},
        [["x", ".b.org"]],
        [[["x", ".a.org"]], [["x", "www.a.org"]], [["x", ".b.org"], ["y", "a.org"]]],
    ),
    Twin(
        "check_history_deleted",
        {"type": "keywords", "keywords": ["tube.org"]},
        {},
        [["https://a.org/", "tube.org", 1]],
        [
            [["https://a.org/", "a", 1], ["https://tube.org/x", "x", 2]],
            [["https://a.org/?from=tube.org", "a", 1]],
            [["https://www.tube.org/", "tube", 1]],
        ],
    ),
    Twin(
        "run_sqlite3",
        {"sql": "select count(*) = 2 from marks where id = 58 and value = 'x'"},
        {},
        database(marks=[("id", "value"), (58, "x"), (5, "y"), (58, "x")]),
        [
            database(marks=[("id", "value"), (58, "x"), (5, "x")]),
            database(marks=[("id", "value"), (58, "X"), (58, "x")]),
            database(mark=[("id", "value"), (58, "x"), (58, "x")]),
            database(marks=[("id", "value")]),
        ],
    ),
    Twin(
        "is_vlc_playing",
        {"type": "file_name", "file_name": "a.mp4"},
        {},
        status("playing", filename="a.mp4"),
        [
            status("paused", filename="a.mp4"),
            status("playing", filename="b.mp4"),
            status("playing", filename="b.mp4", title="a.mp4"),
            status("stopped"),
        ],
    ),
    Twin(
        "is_vlc_playing",
        {"type": "url", "url": "https://a.org/v/m.m3u8"},
        {},
        status("playing", filename="m.m3u8"),
        [
            status("playing", url="https://a.org/v/n.m3u8"),
            status("stopped", url="https://a.org/v/m.m3u8"),
            status("stopped"),
        ],
    ),
]
