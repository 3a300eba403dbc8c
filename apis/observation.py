"""What the guest agent saw, as bounded and typed values, filtered to what a model can use.

Invariant: nothing a hostile guest sends can grow past the bounds below or keep a type it should not have: a frame of
another shape raises ProtocolError, an overlong one is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from apis.apps import app_of_class
from runtime.errors import ProtocolError

MAX_WINDOWS = 32
MAX_ELEMENTS = 400
MAX_TEXT = 500  # characters of a name, a text or a title
MAX_INFO = 5000  # characters of an application's own description
MAX_PIXEL = 2**15  # of a place or a size on the screen


class Window(msgspec.Struct, frozen=True):
    """A top-level window; `number` is the X window's."""

    number: int
    wm_class: str
    title: str
    active: bool

    @property
    def app(self) -> str:
        """The application's name, or its window class where it is none we know."""
        return app_of_class(self.wm_class) or self.wm_class.lower()


class Element(msgspec.Struct, frozen=True):
    """One row of the accessibility tree: showing, visible, with a box in screen pixels."""

    tag: str
    name: str
    text: str
    x: int
    y: int
    w: int
    h: int
    states: tuple[str, ...] = ()  # foc, chk, sel, sen, edt, exp; bar: on a full tool bar, off: surely disabled
    window: int = -1  # index into Observation.windows; -1 where unknown

    @property
    def cx(self) -> int:
        """Centre, pixels from the left."""
        return self.x + self.w // 2

    @property
    def cy(self) -> int:
        """Centre, pixels from the top."""
        return self.y + self.h // 2

    @property
    def label(self) -> str:
        """What a model reads: the name, the text, or both; of a cell its address and what it shows."""
        if self.name and self.text and self.text != self.name:
            return f"{self.name} {self.text}" if self.tag == "table-cell" else f"{self.name} ({self.text})"
        return self.name or self.text

    @property
    def editable(self) -> bool:
        """Whether text can be typed into it."""
        return "edt" in self.states


class Observation(msgspec.Struct, frozen=True):
    """One look at a desktop."""

    windows: tuple[Window, ...]
    elements: tuple[Element, ...]
    info: str = ""  # what the active application's tools say about its document

    @property
    def active(self) -> int:
        """Index of the active window, -1 when there is none."""
        return next((n for n, window in enumerate(self.windows) if window.active), -1)

    @property
    def app(self) -> str:
        """The active window's application, "" when there is none."""
        return self.windows[self.active].app if self.active >= 0 else ""


_ENDINGS = (
    "item", "button", "heading", "label", "scrollbar", "searchbox", "textbox", "link", "tabelement", "textfield",
    "textarea", "menu",
)  # fmt: skip
_TAGS = frozenset(
    (
        "alert", "canvas", "check-box", "combo-box", "entry", "icon", "image", "page-tab", "paragraph", "scroll-bar",
        "section", "slider", "spin-button", "static", "table-cell", "terminal", "text",
    )
)  # fmt: skip


def usable(element: Element) -> bool:
    """The published filter: a tag that says something, on the screen, with a name or a text.

    Two things are added to it: an editable field stays even when it is empty, else nobody could ever fill it, and
    tabs stay, else nobody could turn to another sheet.
    """
    tag = element.tag
    kept = tag.startswith("document") or tag.endswith(_ENDINGS) or tag in _TAGS
    shown = element.x >= 0 and element.y >= 0 and element.w > 0 and element.h > 0
    return kept and shown and bool(element.label.strip() or element.editable)


def without_duplicates(elements: Sequence[Element]) -> list[Element]:
    """Drop an element that says the same as an earlier one and overlaps it (intersection over union above 0.2)."""
    kept: list[Element] = []
    by_label: dict[str, list[Element]] = {}
    for element in elements:
        same = by_label.setdefault(element.label, [])
        if not any(_overlap(element, other) > 0.2 for other in same):
            same.append(element)
            kept.append(element)
    return kept


def _overlap(a: Element, b: Element) -> float:
    wide = min(a.x + a.w, b.x + b.w) - max(a.x, b.x)
    high = min(a.y + a.h, b.y + b.h) - max(a.y, b.y)
    both = max(wide, 0) * max(high, 0)
    return both / (a.w * a.h + b.w * b.h - both)


def from_guest(frame: Any) -> Observation:
    """The guest agent's answer to `observe`, checked, cut and filtered.

    `frame`, or what its struct stands for, is `{"windows": [{"id", "class", "title", "active"}], "elements": [[tag,
    name, text, x, y, w, h, states, window]], "info": text}`, the last one not always; unknown keys are ignored. Raises
    ProtocolError when it is anything else.
    """
    try:
        if isinstance(frame, msgspec.Struct):
            frame = msgspec.to_builtins(frame)
        windows = tuple(_window(row) for row in frame["windows"][:MAX_WINDOWS])
        elements = [_element(row) for row in frame["elements"][:MAX_ELEMENTS] if not _vast(row)]
        info = _text(frame.get("info"), MAX_INFO)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"the guest's observation has another shape: {type(error).__name__}") from error
    usable_ones = without_duplicates([element for element in elements if usable(element)])
    return Observation(windows=windows, elements=tuple(usable_ones), info=info)


def _window(row: Any) -> Window:
    return Window(
        number=_whole(row["id"], 2**32),
        wm_class=_text(row["class"])[:80],
        title=_text(row["title"]),
        active=row["active"] is True,
    )


def _vast(row: Any) -> bool:
    """Whether an element has more pixels than any screen, as a page of a very long text has: nothing to point at."""
    return any(type(value) is int and abs(value) > MAX_PIXEL for value in row[3:7])


def _element(row: Any) -> Element:
    tag, name, text, x, y, w, h, states, window = row[:9]
    return Element(
        tag=_text(tag)[:40].replace(" ", "-"),
        name=_text(name),
        text=_text(text),
        x=_whole(x, MAX_PIXEL),
        y=_whole(y, MAX_PIXEL),
        w=_whole(w, MAX_PIXEL),
        h=_whole(h, MAX_PIXEL),
        states=tuple(_text(state)[:8] for state in states[:8]),
        window=_whole(window, MAX_WINDOWS),
    )


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a string is wanted")
    return value[:limit].replace("\ufffc", "").replace("\ufffd", "")


def _whole(value: Any, bound: int) -> int:
    if type(value) is not int or not -bound <= value <= bound:
        raise ValueError("a small whole number is wanted")
    return value
