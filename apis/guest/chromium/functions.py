"""The functions of Chromium, as `apis/apps/chromium.yaml` declares them, and what of a web page a click reaches.

A page that does not answer, as one behind a dialog of its own, is not asked again for `SILENT_S`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from guest import Refused
from guest.chromium import profile
from guest.chromium import start as chromium_start
from guest.chromium.devtools import soon
from guest.chromium.link import Browser, clean, described, failed, tabs_script
from guest.tools import public
from Xlib import XK, X, display
from Xlib.ext import xtest

SILENT_S = 5.0
PAGES_MAX = 4  # of the same address
BOXES_MAX = 50
FRAMES_MAX = 8  # of other origins
NO_SIZE = 2  # pixels, up to which a check box is only there for programs
TEXT_MAX = 500
PIXEL_MAX = 1 << 15
_SCRIPT = Path(__file__).with_name("sight.js").read_text()
_KINDS = {"check-box", "radio-button"}
Box = tuple[int, int, int, int]


class Seen:
    """A page's answer: what is covered, where the others are, what they are set to, and boxes of no size."""

    def __init__(self, answer: Any, count: int) -> None:
        """`count` elements were asked about. An answer of another shape raises ValueError, TypeError or KeyError."""
        self.covered = {at for at in range(count) if answer["at"].get(str(at), 0) is None}
        self.places = {int(at): _box(box) for at, box in answer["at"].items() if box and 0 <= int(at) < count}
        self.values = {int(at): str(text)[:TEXT_MAX] for at, text in answer["value"].items()}
        self.boxes = [_box_row(row) for row in answer["boxes"][:BOXES_MAX]]

    def applied(self, rows: list[list[Any]], corner: tuple[int, int], window: int) -> list[list[Any]]:
        """The elements that a click reaches, where it does; `rows` are those that were asked about."""
        left, top = corner
        reached = []
        moved = {(rows[at][1], *rows[at][3:7]) for at in self.places}
        for at, row in enumerate(rows):
            if at in self.covered or (row[0] in _KINDS and min(row[5], row[6]) <= NO_SIZE):
                continue
            if at not in self.places and (row[1], *row[3:7]) in moved:
                continue  # the text in a link that goes over lines
            x, y, w, h = self.places.get(at, (row[3] - left, row[4] - top, row[5], row[6]))
            reached.append([row[0], row[1], self.values.get(at, row[2]), x + left, y + top, w, h, *row[7:]])
        for kind, name, (x, y, w, h), states in self.boxes:
            reached.append([kind, name, "", x + left, y + top, w, h, states, window, -1])
        return reached


def _box(given: list[Any]) -> Box:
    x, y, w, h = given
    if not all(type(each) is int and abs(each) <= PIXEL_MAX for each in (x, y, w, h)):
        raise ValueError("a box has four small whole numbers")
    return x, y, w, h


def _box_row(given: list[Any]) -> tuple[str, str, Box, list[str]]:
    """Tag, name, box and states of a check box or radio button that its label represents."""
    kind, name, x, y, w, h, checked, disabled, focused = given
    if kind not in _KINDS:
        raise ValueError("no kind of box")
    states = ["foc"] * bool(focused) + ["chk"] * bool(checked) + ["off" if disabled else "sen"]
    return kind, str(name)[:TEXT_MAX], _box([x, y, w, h]), states


class Sight:
    """Asks the page that shows."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page = ""  # the target that was looked into before
        self._silent = "", 0.0  # address of a page that did not answer, and when that was

    def look(self, url: str, title: str, elements: list[list[Any]], until: float) -> Seen | None:
        """What the page says of `elements`, each [x, y, w, h, tag, name] from the page's corner. Raises Refused.

        None where no page is found that shows, or its answer has another shape.
        """
        plain = url.partition("#")[0]
        if self._silent[0] == plain and time.monotonic() - self._silent[1] < SILENT_S:
            return None
        shows = f"document.visibilityState === 'visible' && document.URL.split('#')[0] === {json.dumps(plain)}"
        call = f"{shows} ? ({_SCRIPT})({json.dumps(elements)}) : null"
        try:
            answer = self._again(call, until)
            if answer is None:
                answer = self._search(plain, title, call, until)
        except Refused:
            self._browser.unlook()
            if time.monotonic() >= until:
                self._silent = plain, time.monotonic()
            raise
        try:
            if answer is None:
                return None
            for frame in answer["frames"][:FRAMES_MAX]:
                try:
                    self._into(answer, frame, elements, until)
                except (Refused, LookupError):  # it has gone, or is a process of its own
                    self._browser.unlook()
            return Seen(answer, len(elements))
        except (ValueError, TypeError, LookupError, AttributeError):
            return None

    def _into(self, answer: dict[str, Any], frame: list[Any], elements: list[list[Any]], until: float) -> None:
        """Add to the page's answer what a frame of another origin says of its elements. Raises Refused.

        A frame in it of yet another origin is not looked into.
        """
        path, left, top, clear, indexes = frame
        asked = [[elements[at][0] - left, elements[at][1] - top, *elements[at][2:]] for at in indexes]
        inner = self._browser.look(self._page, f"({_SCRIPT})({json.dumps(asked)})", until, path)

        def moved(box: list[int]) -> list[int]:
            return [box[0] + left, box[1] + top, *box[2:]]

        answer["at"] |= {str(indexes[int(at)]): box and moved(box) for at, box in inner["at"].items()}
        answer["value"] |= {str(indexes[int(at)]): text for at, text in inner["value"].items()}
        if clear:
            answer["boxes"] += [[*row[:2], *moved(row[2:6]), *row[6:]] for row in inner["boxes"]]

    def _again(self, call: str, until: float) -> Any:
        """What the page says that was looked into before; None where that shows no more."""
        if not self._page or not self._browser.ready:
            return None
        try:
            return self._browser.look(self._page, call, until)
        except Refused:
            if time.monotonic() >= until:
                raise
            self._browser.unlook()
            return None

    def _search(self, plain: str, title: str, call: str, until: float) -> Any:
        pages = [page for page in self._browser.pages(until) if page["url"].partition("#")[0] == plain]
        for page in sorted(pages, key=lambda page: page["title"] != title)[:PAGES_MAX]:
            self._page = page["targetId"]
            if (answer := self._browser.look(self._page, call, until)) is not None:
                return answer
        return None


CALL_S = 8.0  # less than the agent waits
KEEP_S = 8.0  # for a file that Chromium writes 2.5 s after a change
PRINT_S = 5.0
MAKE_S = 15.0  # for a first start of Chromium on a busy machine
INFO_S, CONNECT_S = 0.25, 3.0
INFO_CHARS = 4800
TITLE_CHARS, URL_CHARS = 100, 200
TABS_MAX = 60
_BROWSER = Browser()
_SIGHT = Sight(_BROWSER)
_PAGES_SCRIPT = Path(__file__).with_name("pages.js").read_text()
_PRINT = "chrome://print/"

_SEEN = "document.visibilityState === 'visible'"


def _page(what: str) -> str:
    return f"({_PAGES_SCRIPT}).{what}()"


def call(name: str, arguments: dict[str, Any]) -> str:
    """Carry out a function. Raises Refused."""
    return public(BrowserTools(_BROWSER), name, arguments)


def info() -> str:
    """The tabs of every window, the one in front first, with the active one marked. Raises Refused."""
    # A connection is made even after its caller has given up: the next caller finds it.
    until = soon(INFO_S if _BROWSER.ready else CONNECT_S)
    shown = _BROWSER.run(tabs_script("tabs"), until)
    lines: list[str] = []
    if not shown["focused"] and (hidden := _BROWSER.incognito(until)):
        lines.append(f"Incognito tabs: {len(hidden)}")
        lines += [f"- {_row(page['title'], page['url'])}" for page in hidden[:TABS_MAX]]
    for front, count, tabs in sorted(shown["windows"], key=lambda window: not window[0]):
        lines.append(f"{'tabs' if front else 'tabs of another window'}: {count}")
        for number, (active, title, url) in enumerate(tabs, 1):
            mark = "*" if active else " "
            extra = " | bookmarked" if front and active and shown["marked"] else ""
            lines.append(f"{mark} {number}: {_row(title, url)}{extra}")
        lines += ["..."] * (count > len(tabs))
    return "\n".join(lines)[:INFO_CHARS]


def _row(title: str, url: str) -> str:
    return f"{clean(title, TITLE_CHARS)} | {clean(url, URL_CHARS)}"


def _quoted(title: str, url: str) -> str:
    return f"{clean(title, TITLE_CHARS)!r} ({clean(url, URL_CHARS)})"


def state() -> str:
    """The addresses and titles of all tabs, and which is in front, as JSON. Raises Refused."""
    shown, active = _BROWSER.run(tabs_script("state"), soon(CALL_S))
    return json.dumps({"tabs": shown, "active": active})


def sight(url: str, title: str, elements: list[list[Any]]) -> Seen | None:
    """What the page in front says of its elements, as `Sight.look`. Raises Refused."""
    return _SIGHT.look(url, title, elements, soon(INFO_S if _BROWSER.ready else CONNECT_S))


def keep() -> None:
    """Wait until what has been changed in the profile is in its files. Raises Refused."""
    profile.wait_written(_BROWSER, soon(KEEP_S))


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


def visited(visits: list[profile.Visit]) -> None:
    """Put visits into the history, before Chromium starts. Raises Refused."""
    profile.write(visits, soon(MAKE_S))


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
        return self._open("profile", "chrome://settings/people")

    def open_password_settings(self) -> str:
        return self._open("passwords", "chrome://password-manager/settings")

    def open_privacy_settings(self) -> str:
        return self._open("privacy", "chrome://settings/privacy")

    def open_appearance_settings(self) -> str:
        return self._open("appearance", "chrome://settings/appearance")

    def open_search_engine_settings(self) -> str:
        return self._open("engines", "chrome://settings/search")

    def open_extensions(self) -> str:
        return self._open("extensions", "chrome://extensions/")

    def open_bookmarks(self) -> str:
        return self._open("bookmarks", "chrome://bookmarks/")

    def bookmark_page(self) -> str:
        self._front()
        mark = self._browser.run(tabs_script("bookmark"), self._until)
        if mark is None:
            raise failed("the page in front has no address: open one first")
        old, title, url, folder = mark
        what = _quoted(title, url)
        return f"{what} {'was bookmarked already' if old else 'is bookmarked'}, in {clean(folder, TITLE_CHARS)!r}"

    def bring_back_last_tab(self) -> str:
        restored = self._browser.run(tabs_script("bringBack"), self._until)
        if restored is None:
            raise failed("no tab has been closed that could be brought back")
        count, title, url = restored
        what = _quoted(title, url)
        return f"{what} is open again" if count == 1 else f"a window with {count} tabs is open again, first {what}"

    def delete_browsing_data(self) -> str:
        return self._open("data", "chrome://settings/clearBrowserData", again=True)

    def print(self) -> str:
        front = self._front()
        open_now = [page for page in self._browser.pages(self._until) if page["url"].startswith(_PRINT)]
        shown = (each["targetId"] for each in open_now if self._browser.read(each["targetId"], _SEEN, self._until))
        target = next(shown, None)
        if target is None:
            try:
                target = self._browser.wait_page(_PRINT, _press_print, min(self._until, soon(PRINT_S)))
            except Refused as refused:
                text = "the page in front did not let its print dialog open: close what covers it, or press ctrl+p"
                raise failed(text) from refused
        lines = self._browser.read(target, _page("print"), self._until)
        return described(_PRINT, [f"page: {front}", *lines])

    def _front(self) -> str:
        """The title of the page in front. Raises Refused where none is that the functions may touch."""
        focused, title = self._browser.run(tabs_script("front"), self._until)
        if not focused and self._browser.incognito(self._until):
            raise failed("an Incognito window is in front: bring another one to the front, or use the keyboard")
        if title is None:
            raise failed("no page is in front: open one first")
        return clean(title, TITLE_CHARS)

    def _open(self, what: str, url: str, again: bool = False) -> str:
        return described(url, self._browser.show(url, _page(what), self._until, again))


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
