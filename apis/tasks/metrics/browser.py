"""Metrics of a browser: addresses, tabs, bookmarks, cookies and history.

Two addresses are the same by scheme (http where none is said), host without www, path, query and fragment.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from apis.tasks.metrics import rules
from apis.tasks.metrics.metric import Declared, Options, Score, Value, is_

URL_MAX = 4096  # characters
_MOST = 5000  # tabs, bookmarks or cookies
_MOST_PAGES = 100_000  # of a history


def _address(url: object) -> tuple[str, ...] | None:
    """What of an address counts; None for what is none."""
    if not isinstance(url, str) or len(url) > URL_MAX:
        return None
    try:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
        host = parts.netloc.lower().removeprefix("www.")
    except ValueError:
        return None
    return parts.scheme, host, "" if parts.path == "/" else parts.path, parts.query, parts.fragment


def _url(value: Value) -> object:
    return value.get("url") if isinstance(value, dict) else value


def is_expected_active_tab(result: Value, expected: Value, _: Options) -> Score:
    """The tab in front shows `url`."""
    there = _address(_url(result))
    return is_(there is not None and there == _address(expected["url"]), "it shows it", "another tab is in front")


def is_expected_url_pattern_match(result: Value, expected: Value, _: Options) -> Score:
    """Each pattern of `expected` is found in the address."""
    there = _url(result)
    absent = [pattern for pattern in expected["expected"] if not rules.found(pattern, there)]
    return is_(not absent and bool(expected["expected"]), "the address is as it should be", f"it lacks {absent[:1]}")


def is_expected_search_query(result: Value, expected: Value, _: Options) -> Score:
    """The pattern of `expect` is found in the address."""
    return is_(rules.found(expected["expect"]["pattern"], _url(result)), "it was searched for", "another address")


def is_expected_tabs(result: Value, expected: Value, _: Options) -> Score:
    """The open tabs are those of `urls`, in any order."""
    tabs = result[:_MOST] if isinstance(result, list) else []
    there, wanted = Counter(_address(_url(tab)) for tab in tabs), Counter(map(_address, expected["urls"]))
    return is_(there == wanted, "the tabs are open", "other tabs are open")


def _bar(result: Value) -> list[dict[str, Any]]:
    bar = result.get("bookmark_bar") if isinstance(result, dict) else None
    children = bar.get("children") if isinstance(bar, dict) else None
    return [child for child in (children if isinstance(children, list) else [])[:_MOST] if isinstance(child, dict)]


def is_expected_bookmarks(result: Value, expected: Value, _: Options) -> Score:
    """The bookmark bar has the folders `names`, or the pages `urls`, and no other."""
    bar, kind = _bar(result), expected["type"]
    if kind == "bookmark_bar_folders_names":
        there = {str(child.get("name")) for child in bar if child.get("type") == "folder"}
        return is_(there == set(expected["names"]), "the folders are there", "other folders are there")
    if kind == "bookmark_bar_websites_urls":
        pages = {str(child.get("url")) for child in bar if child.get("type") == "url"}
        return is_(pages == set(expected["urls"]), "the pages are there", "other pages are there")
    raise LookupError(f"there is no type {kind}")


def is_cookie_deleted(result: Value, expected: Value, _: Options) -> Score:
    """No cookie is left of `domains`."""
    if not isinstance(result, list) or expected["type"] != "domains":
        return Score(0.0, "there is no list of cookies")
    rows = result[:_MOST]
    if not all(isinstance(row, list | tuple) and len(row) > 1 for row in rows):
        return Score(0.0, "a cookie can't be read")
    hosts = {str(row[1]) for row in rows}
    ends = {domain: f".{domain.lstrip('.')}" for domain in expected["domains"]}
    left = [domain for domain, end in ends.items() if any(f".{host.lstrip('.')}".endswith(end) for host in hosts)]
    return is_(not left, "none is left", f"cookies of {left[:1]} are left")


def check_history_deleted(result: Value, expected: Value, _: Options) -> Score:
    """No page's address in the history has one of `keywords`."""
    if not isinstance(result, list) or expected["type"] != "keywords":
        return Score(0.0, "there is no history")
    rows = result[:_MOST_PAGES]
    if not all(isinstance(row, list | tuple) and row for row in rows):
        return Score(0.0, "a page can't be read")
    pages = [str(row[0]) for row in rows]
    left = [word for word in expected["keywords"] if any(word in page for page in pages)]
    return is_(not left, "none is left", f"pages with {left[:1]} are left")


_WHOLE = "the end of the host, as .com, counts"
DECLARED = (
    Declared("is_expected_active_tab", is_expected_active_tab, _WHOLE, types=frozenset(("url",))),
    Declared("is_expected_url_pattern_match", is_expected_url_pattern_match, "with no pattern it scores 0"),
    Declared("is_expected_search_query", is_expected_search_query),
    Declared("is_expected_tabs", is_expected_tabs, _WHOLE, types=frozenset(("url",))),
    Declared(
        "is_expected_bookmarks",
        is_expected_bookmarks,
        types=frozenset(("bookmark_bar_folders_names", "bookmark_bar_websites_urls")),
    ),
    Declared("is_cookie_deleted", is_cookie_deleted, types=frozenset(("domains",))),
    Declared("check_history_deleted", check_history_deleted, types=frozenset(("keywords",))),
)
