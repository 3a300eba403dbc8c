"""The functions of Chromium, as the agent calls them.

Invariant: `BrowserTools` has the public methods that `apis/apps/chromium/functions.py` declares. An answer is one
bounded text that says what Chromium holds after the call.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from guest.chromium import keep as chromium_keep
from guest.chromium import pages
from guest.chromium import start as chromium_start
from guest.chromium import visits as chromium_visits
from guest.chromium.devtools import soon
from guest.chromium.link import Browser, clean, failed
from guest.chromium.sight import Seen, Sight
from guest.errors import Refused
from guest.tools import public
from Xlib import XK, X, display
from Xlib.ext import xtest

CALL_S = 8.0  # less than the agent waits
KEEP_S = 8.0  # for a file that Chromium writes 2.5 s after a change
PRINT_S = 5.0
MAKE_S = 15.0  # for a first start of Chromium on a busy machine
INFO_S, CONNECT_S = 0.25, 3.0
INFO_CHARS = 4800
TITLE_CHARS, URL_CHARS = 100, 200
TABS_MAX, STATE_CHARS = 60, 2000
_BROWSER = Browser()
_SIGHT = Sight(_BROWSER)

_TABS = f"""(async () => {{
  const front = await chrome.windows.getLastFocused();
  const windows = await chrome.windows.getAll({{populate: true}});
  const [at] = await chrome.tabs.query({{active: true, windowId: front.id}});
  const marks = at && at.url ? await chrome.bookmarks.search({{url: at.url}}).catch(() => []) : [];
  const told = tab =>
    [tab.active, (tab.title ?? '').slice(0, {TITLE_CHARS + 1}), (tab.url ?? '').slice(0, {URL_CHARS + 1})];
  return {{focused: front.focused, marked: marks.length > 0, windows: windows.map(each =>
    [each.id === front.id, each.tabs.length, each.tabs.slice(0, {TABS_MAX}).map(told)])}};
}})()"""
_BOOKMARK = f"""(async () => {{
  const [tab] = await chrome.tabs.query({{active: true, lastFocusedWindow: true}});
  if (!tab || !tab.url) return null;
  const [old] = await chrome.bookmarks.search({{url: tab.url}}).catch(() => []);
  const bar = (await chrome.bookmarks.getTree())[0].children.find(each => each.folderType === 'bookmarks-bar');
  const made = old ?? await chrome.bookmarks.create({{parentId: bar.id, title: tab.title ?? '', url: tab.url}});
  const [mark] = await chrome.bookmarks.get(made.id);
  const [folder] = await chrome.bookmarks.get(mark.parentId);
  return [Boolean(old), mark.title.slice(0, {TITLE_CHARS + 1}), mark.url.slice(0, {URL_CHARS + 1}), folder.title];
}})()"""
_BRING_BACK = f"""(async () => {{
  const [last] = await chrome.sessions.getRecentlyClosed({{maxResults: 1}});
  if (!last) return null;
  const tabs = last.tab ? [last.tab] : last.window.tabs;
  await chrome.sessions.restore((last.tab ?? last.window).sessionId);
  const [{{title, url}}] = tabs;
  return [tabs.length, (title ?? '').slice(0, {TITLE_CHARS + 1}), (url ?? '').slice(0, {URL_CHARS + 1})];
}})()"""


_FRONT = f"""(async () => {{
  const [tab] = await chrome.tabs.query({{active: true, lastFocusedWindow: true}});
  const focused = (await chrome.windows.getLastFocused()).focused;
  return [focused, tab ? (tab.title || tab.url || '').slice(0, {TITLE_CHARS + 1}) : null];
}})()"""
_STATE = f"""(async () => {{
  const [front] = await chrome.tabs.query({{active: true, lastFocusedWindow: true}});
  const tabs = (await chrome.tabs.query({{}})).slice(0, {TABS_MAX});
  const text = value => (value ?? '').slice(0, {STATE_CHARS});
  const told = tabs.map(tab => [text(tab.pendingUrl || tab.url), text(tab.title)]);
  return [told, tabs.findIndex(tab => front && tab.id === front.id)];
}})()"""
_SEEN = "document.visibilityState === 'visible'"


def call(name: str, arguments: dict[str, Any]) -> str:
    """Carry out a function. Raises Refused."""
    return public(BrowserTools(_BROWSER), name, arguments)


def info() -> str:
    """The tabs of every window, the one in front first, with the active one marked. Raises Refused."""
    # A connection is made even after its caller has given up: the next caller finds it.
    until = soon(INFO_S if _BROWSER.ready else CONNECT_S)
    found = _BROWSER.run(_TABS, until)
    lines: list[str] = []
    if not found["focused"] and (hidden := _BROWSER.incognito(until)):
        lines.append(f"Incognito tabs: {len(hidden)}")
        lines += [
            f"- {clean(page['title'], TITLE_CHARS)} | {clean(page['url'], URL_CHARS)}" for page in hidden[:TABS_MAX]
        ]
    for front, count, tabs in sorted(found["windows"], key=lambda window: not window[0]):
        lines.append(f"{'tabs' if front else 'tabs of another window'}: {count}")
        for number, (active, title, url) in enumerate(tabs, 1):
            mark = "*" if active else " "
            extra = " | bookmarked" if front and active and found["marked"] else ""
            lines.append(f"{mark} {number}: {clean(title, TITLE_CHARS)} | {clean(url, URL_CHARS)}{extra}")
        lines += ["..."] * (count > len(tabs))
    return "\n".join(lines)[:INFO_CHARS]


def state() -> str:
    """The addresses and titles of all tabs, and which is in front, as JSON. Raises Refused."""
    found = _BROWSER.run(_STATE, soon(CALL_S))
    return json.dumps({"tabs": found[0], "active": found[1]})


def sight(url: str, title: str, elements: list[list[Any]]) -> Seen | None:
    """What the page in front says of its elements, as `Sight.look`. Raises Refused."""
    return _SIGHT.look(url, title, elements, soon(INFO_S if _BROWSER.ready else CONNECT_S))


def keep() -> None:
    """Wait until what has been changed in the profile is in its files. Raises Refused."""
    chromium_keep.wait_written(_BROWSER, soon(KEEP_S))


def tabs(opened: list[str], closed: list[str]) -> None:
    """Open a tab for each address of `opened`, and close a tab for each of `closed` that one shows. Raises Refused."""
    until = soon(CALL_S)
    shown = _BROWSER.pages(until)
    for url in opened:
        _BROWSER.ask("Target.createTarget", until, url=url)
    for url in closed:
        page = next((page for page in shown if page["url"].rstrip("/") == url.rstrip("/")), None)
        if page is not None:
            shown.remove(page)
            _BROWSER.ask("Target.closeTarget", until, targetId=page["targetId"])


def visited(visits: list[chromium_visits.Visit]) -> None:
    """Put visits into the history, before Chromium starts. Raises Refused."""
    chromium_visits.write(visits, soon(MAKE_S))


def reachable(argv: list[str]) -> list[str]:
    """`argv`, which starts Chromium, made quiet and reachable."""
    if any(part.startswith("--remote-debugging-port") for part in argv):
        return argv
    return chromium_start.command(argv, str(Path(__file__).with_name(chromium_start.HELPER)))


class BrowserTools:
    """All of them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._until = soon(CALL_S)

    def open_profile_settings(self) -> str:
        return self._open(pages.PROFILE)

    def open_password_settings(self) -> str:
        return self._open(pages.PASSWORDS)

    def open_privacy_settings(self) -> str:
        return self._open(pages.PRIVACY)

    def open_appearance_settings(self) -> str:
        return self._open(pages.APPEARANCE)

    def open_search_engine_settings(self) -> str:
        return self._open(pages.ENGINES)

    def open_extensions(self) -> str:
        return self._open(pages.EXTENSIONS)

    def open_bookmarks(self) -> str:
        return self._open(pages.BOOKMARKS)

    def bookmark_page(self) -> str:
        self._front()
        found = self._browser.run(_BOOKMARK, self._until)
        if found is None:
            raise failed("the page in front has no address: open one first")
        old, title, url, folder = found
        what = f"{clean(title, TITLE_CHARS)!r} ({clean(url, URL_CHARS)})"
        return f"{what} {'was bookmarked already' if old else 'is bookmarked'}, in {clean(folder, TITLE_CHARS)!r}"

    def bring_back_last_tab(self) -> str:
        found = self._browser.run(_BRING_BACK, self._until)
        if found is None:
            raise failed("no tab has been closed that could be brought back")
        count, title, url = found
        what = f"{clean(title, TITLE_CHARS)!r} ({clean(url, URL_CHARS)})"
        return f"{what} is open again" if count == 1 else f"a window with {count} tabs is open again, first {what}"

    def delete_browsing_data(self) -> str:
        return self._open(pages.DATA, again=True)

    def print(self) -> str:
        front = self._front()
        open_now = [page for page in self._browser.pages(self._until) if page["url"].startswith(pages.PRINT.url)]
        shown = (each["targetId"] for each in open_now if self._browser.read(each["targetId"], _SEEN, self._until))
        target = next(shown, None)
        if target is None:
            try:
                target = self._browser.wait_page(pages.PRINT.url, _press_print, min(self._until, soon(PRINT_S)))
            except Refused as refused:
                text = "the page in front did not let its print dialog open: close what covers it, or press ctrl+p"
                raise failed(text) from refused
        value = self._browser.read(target, pages.PRINT.asks, self._until)
        return pages.said(pages.PRINT, {**value, "title": front})

    def _front(self) -> str:
        """The title of the page in front. Raises Refused where none is that the functions may touch."""
        focused, title = self._browser.run(_FRONT, self._until)
        if not focused and self._browser.incognito(self._until):
            raise failed("an Incognito window is in front: bring another one to the front, or use the keyboard")
        if title is None:
            raise failed("no page is in front: open one first")
        return clean(title, TITLE_CHARS)

    def _open(self, page: pages.Page, again: bool = False) -> str:
        return pages.said(page, self._browser.show(page.url, page.asks, self._until, again))


def _press_print() -> None:
    """Ctrl+P into the window in front: DevTools has no command that opens the dialog."""
    shown = display.Display()
    try:
        codes = [shown.keysym_to_keycode(keysym) for keysym in (XK.XK_Control_L, XK.XK_p)]
        for code in codes:
            xtest.fake_input(shown, X.KeyPress, code)
        for code in reversed(codes):
            xtest.fake_input(shown, X.KeyRelease, code)
        shown.sync()
    finally:
        shown.close()
