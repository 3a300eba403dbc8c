"""What of a web page a click reaches: asked of the page itself, for all of its listed elements at once.

Invariant: a page is asked once for each observation and never beyond `until`. What it answers is bounded and typed. A
page that does not answer, as one behind a dialog of its own, is not asked again for `SILENT_S`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from guest.chromium.link import Browser
from guest.errors import Refused

SILENT_S = 5.0
PAGES_MAX = 4  # of the same address
BOXES_MAX = 50
NO_SIZE = 2  # pixels, up to which a check box is only there for programs
TEXT_MAX = 500
PIXEL_MAX = 1 << 15
_SCRIPT = Path(__file__).with_suffix(".js").read_text()
_KINDS = {"check-box", "radio-button"}
Box = tuple[int, int, int, int]


class Seen:
    """A page's answer: what is covered, where the others are, what they are set to, and boxes of no size."""

    def __init__(self, answer: Any, count: int) -> None:
        """`count` elements were asked about. An answer of another shape raises ValueError, TypeError or KeyError."""
        self.covered = {at for at in range(count) if answer["at"].get(str(at), 0) is None}
        self.places = {int(at): _box(box) for at, box in answer["at"].items() if box and 0 <= int(at) < count}
        self.values = {int(at): str(text)[:TEXT_MAX] for at, text in answer["value"].items()}
        self.boxes = [_row(row) for row in answer["boxes"][:BOXES_MAX]]

    def applied(self, rows: list[list[Any]], corner: tuple[int, int], window: int) -> list[list[Any]]:
        """The elements that a click reaches, where it does; `rows` are those that were asked about."""
        left, top = corner
        found = []
        moved = {(rows[at][1], *rows[at][3:7]) for at in self.places}
        for at, row in enumerate(rows):
            if at in self.covered or (row[0] in _KINDS and min(row[5], row[6]) <= NO_SIZE):
                continue
            if at not in self.places and (row[1], *row[3:7]) in moved:
                continue  # the text in a link that goes over lines
            x, y, w, h = self.places.get(at, (row[3] - left, row[4] - top, row[5], row[6]))
            found.append([row[0], row[1], self.values.get(at, row[2]), x + left, y + top, w, h, *row[7:]])
        for kind, name, (x, y, w, h), states in self.boxes:
            found.append([kind, name, "", x + left, y + top, w, h, states, window, -1])
        return found


def _box(given: list[Any]) -> Box:
    x, y, w, h = given
    if not all(type(each) is int and abs(each) <= PIXEL_MAX for each in (x, y, w, h)):
        raise ValueError("a box has four small whole numbers")
    return x, y, w, h


def _row(given: list[Any]) -> tuple[str, str, Box, list[str]]:
    """Tag, name, box and states of a check box or radio button that its label stands for."""
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
            return None if answer is None else Seen(answer, len(elements))
        except (ValueError, TypeError, LookupError, AttributeError):
            return None

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
