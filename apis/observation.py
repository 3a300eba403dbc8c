"""What the guest agent saw, as bounded and typed values, filtered to what a model can use.

Invariant: what a hostile guest sends keeps to the bounds and types below. A frame of another shape raises
ProtocolError. Overlong texts and lists are cut.
"""

# ruff: noqa: SIM905 - a list of tags reads best as words

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from apis.applications import app_of_class
from runtime.errors import ProtocolError

# What desktops show, for recordings and results to name: it grows with every change that a policy can tell.
# 1: of each list its first children, of each text its first characters, covered and minimised things among them.
# 2: what shows, scrolled or not, with values and names; what is left out, unread or behind a dialog is said.
# 3: disabled controls are marked; of a web page only what a click reaches, where it does; terminals keep all signs.
OBSERVATION_VERSION = 3
SCREEN = (1280, 720)  # pixels, width and height, where nothing else is said
MAX_WINDOWS = 32
MAX_ELEMENTS = 400
MAX_TEXT = 500  # characters of a name, a text or a title
MAX_TAG, MAX_STATES = 40, 8  # characters of a tag; states of an element, and characters of each
MAX_INFO = 5000  # characters of an application's own description
MAX_PIXEL = 2**15  # of a place or a size on the screen


class Window(msgspec.Struct, frozen=True):
    """A top-level window; `number` is the X window's."""

    number: int
    wm_class: str
    title: str
    active: bool
    minimised: bool = False  # it shows nothing

    @property
    def app(self) -> str:
        """The application's name, or its window class where it is none we know."""
        return app_of_class(self.wm_class) or self.wm_class.lower()


_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
_Pixels = Annotated[int, msgspec.Meta(ge=-MAX_PIXEL, le=MAX_PIXEL)]


class Element(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of the accessibility tree: showing, visible, with a box in screen pixels."""

    tag: Annotated[str, msgspec.Meta(max_length=MAX_TAG)]
    name: _Text
    text: _Text
    x: _Pixels
    y: _Pixels
    w: _Pixels
    h: _Pixels
    # foc, chk, sel, sen, edt, exp; bar: on a full tool bar, off: surely disabled, behind: it shows, and a dialog that
    # can't be read holds it, cho: a panel that can be chosen
    states: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_STATES)], ...], msgspec.Meta(max_length=MAX_STATES)
    ] = ()
    window: Annotated[int, msgspec.Meta(ge=-MAX_WINDOWS, le=MAX_WINDOWS)] = -1  # index into windows, or unknown
    caret: Annotated[int, msgspec.Meta(ge=-1, le=MAX_TEXT)] = -1  # its place in `text`, -1: not in it, or not known

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
        name, text = self.name, self.text
        if not text:
            return name
        if not name or name == text or name == self.tag.replace("-", " "):
            return text  # an unnamed control is called what it is
        return f"{name} {text}" if self.tag == "table-cell" else f"{name} ({text})"

    @property
    def label_caret(self) -> int:
        """The caret's place in the label, -1 where it is not in it."""
        at = self.label.find(self.text, len(self.name) if self.name else 0) if self.caret >= 0 else -1
        return at + self.caret if at >= 0 else -1

    @property
    def editable(self) -> bool:
        return "edt" in self.states


class Observation(msgspec.Struct, frozen=True, dict=True):
    """One look at a desktop. What is derived from it may be kept in its `__dict__`."""

    windows: tuple[Window, ...]
    elements: tuple[Element, ...]
    info: str = ""  # what the active application's tools say about its document
    cut: bool = False  # an application did not answer in time, or there was more than the agent's bounds
    beyond: int = 0  # things in the lists and pages shown that are scrolled out of view
    screen: tuple[int, int] = SCREEN

    @property
    def active(self) -> int:
        """Index of the active window, -1 when there is none."""
        return next((n for n, window in enumerate(self.windows) if window.active), -1)

    @property
    def app(self) -> str:
        """The active window's application, "" when there is none."""
        return self.windows[self.active].app if self.active >= 0 else ""

    @property
    def unread(self) -> str:
        """Why nothing of the active window can be listed, and what works there; "" where something is."""
        active = self.active
        if active < 0 or any(e.window in (active, -1) and "behind" not in e.states for e in self.elements):
            return ""
        if self.cut:
            return "the window in front did not answer in time: Agent.wait, then look again"
        title = self.windows[active].title
        if title.startswith(_FILE_DIALOGS):
            # Its button accepts it; enter does not. Of the name that is to be saved only the stem is selected.
            keys = ("press ctrl, a, then ", "alt, s") if title.startswith("Save") else ("", "alt, o")
            return f"this file dialog can't be read: {keys[0]}type a path, then press {keys[1]}; escape closes it"
        return "the window in front can't be read; keys and clicks reach it"


_FILE_DIALOGS = ("Open", "Save", "Select", "Choose", "Upload")
_ENDINGS = (
    "item", "button", "heading", "label", "scrollbar", "searchbox", "textbox", "link", "tabelement", "textfield",
    "textarea", "menu",
)  # fmt: skip
_TAGS = frozenset(
    """alert canvas check-box combo-box date-editor dial entry icon image level-bar page-tab paragraph password-text
    progress-bar scroll-bar section slider spin-button static switch table-cell terminal text""".split()
)
_ACTED_ON = frozenset(
    """check-box combo-box date-editor dial entry icon link list-item page-tab password-text slider spin-button
    switch terminal text tree-item""".split()
)
_OF_CHOICE = ("foc", "chk", "sel", "exp")  # states that the kept one of several elements takes on  # fmt: skip


def usable(element: Element) -> bool:
    """The published filter: a tag that says something, on the screen, with a name or a text.

    Two things are added to it. An editable field is kept when it is empty, or it could never be filled. Tabs, bars with
    a value, fields for dates and passwords, and panels that can be chosen are kept, too.
    """
    kept = _says_something(element.tag) or "cho" in element.states
    shown = element.x >= 0 and element.y >= 0 and element.w > 0 and element.h > 0
    return kept and shown and bool(element.label.strip() or element.editable)


@functools.lru_cache(maxsize=1024)
def _says_something(tag: str) -> bool:
    return tag.startswith("document") or tag.endswith(_ENDINGS) or tag in _TAGS


def _worth(element: Element) -> int:
    """How much can be done with an element: nothing (0), typing into a text (1), clicking (2), typing into a field (3).

    A box of choices that can't be typed into holds a field that can, and has the field's name.
    """
    tag = element.tag
    if tag in _ACTED_ON or tag.endswith(("button", "menu-item")) or tag == "menu" or "cho" in element.states:
        return 3 if element.editable else 2
    return 1 if element.editable else 0


def without_duplicates(elements: Sequence[Element]) -> list[Element]:
    """Of elements that say the same and overlap (intersection over union above 0.2) only one is kept.

    That is the first of those with which most can be done. It takes the place of the first of all, and takes on what
    the others say of being checked, chosen, focused and unfolded.
    """
    kept: list[Element] = []
    by_label: dict[str, list[int]] = {}  # indexes into `kept`
    for element in elements:
        label = element.name or element.text
        at = next((at for at in by_label[label] if _one_thing(element, kept[at])), None) if label in by_label else None
        if at is None:
            by_label.setdefault(label, []).append(len(kept))
            kept.append(element)
            continue
        first = kept[at]
        winner, other = (element, first) if _worth(element) > _worth(first) else (first, element)
        taken = tuple(state for state in _OF_CHOICE if state in other.states and state not in winner.states)
        kept[at] = msgspec.structs.replace(winner, states=winner.states + taken) if taken else winner
    return kept


def _one_thing(a: Element, b: Element) -> bool:
    """Whether two elements of the same name are one: at one place, and not both with a value of their own."""
    alike = a.label == b.label or not (a.text and b.text) or a.name == b.text or b.name == a.text
    return alike and _overlap(a, b) > 0.2


def _overlap(a: Element, b: Element) -> float:
    wide = min(a.x + a.w, b.x + b.w) - max(a.x, b.x)
    high = min(a.y + a.h, b.y + b.h) - max(a.y, b.y)
    both = max(wide, 0) * max(high, 0)
    return both / (a.w * a.h + b.w * b.h - both)


class Listed(msgspec.Struct, frozen=True):
    """A window as an observation lists it."""

    id: int
    class_: str | None = msgspec.field(name="class")
    title: str | None
    active: bool
    minimised: bool = False


class Frame(msgspec.Struct, frozen=True):
    """The guest's answer to `observe`; `from_guest` cuts it to its bounds.

    What else a guest adds is passed by without being built: keys that hash alike would cost as many seconds.
    """

    windows: list[Listed]
    elements: list[
        tuple[str | None, str | None, str | None, int, int, int, int, list[str | None], int]
    ]  # tag, name, text, x, y, width, height, states, window's place in the list
    cut: bool = False  # the deadline had come before all was listed
    carets: list[tuple[int, int]] = []  # an element's place in the list, the caret's in its text
    beyond: int = 0  # things that are scrolled out of view
    info: str | None = None


_TAKEN_OUT = "\ufffc", "\ufffd"  # for objects in a text, and for bytes that are none


def from_guest(frame: Any, screen: tuple[int, int] = SCREEN) -> Observation:
    """The guest agent's answer to `observe` on a `screen` of so many pixels, checked, cut and filtered.

    `frame` is a `Frame` or the maps and lists of one. Raises ProtocolError when it is anything else.
    """
    try:
        read = frame if isinstance(frame, Frame) else msgspec.convert(frame, Frame)
        windows = tuple(_window(row) for row in read.windows[:MAX_WINDOWS])
        carets = {_whole(at, MAX_ELEMENTS): _whole(place, MAX_TEXT) for at, place in read.carets}
        rows = enumerate(read.elements[:MAX_ELEMENTS])
        # One with more pixels than any screen, as a page of a very long text has, is nothing to point at.
        elements = [_element(row, carets.get(at, -1)) for at, row in rows if max(map(abs, row[3:7])) <= MAX_PIXEL]
        beyond = max(0, _whole(read.beyond, 2**31))
    except ValueError as error:  # msgspec's own among them
        raise ProtocolError(f"the guest's observation has another shape: {type(error).__name__}") from error
    seen = without_duplicates([element for element in elements if usable(element)])
    cut = read.cut or len(read.elements) > MAX_ELEMENTS
    return Observation(windows, _sharing(seen), _text(read.info, MAX_INFO), cut, beyond, screen)


def _sharing(elements: Sequence[Element]) -> tuple[Element, ...]:
    """The same elements; of tags, states and numbers that are equal one is kept, which halves their memory."""
    kept: dict[Any, Any] = {}
    of = kept.setdefault
    return tuple(
        Element(
            of(e.tag, e.tag), e.name, e.text, of(e.x, e.x), of(e.y, e.y), of(e.w, e.w), of(e.h, e.h),
            of(e.states, e.states), e.window, e.caret,
        )
        for e in elements
    )  # fmt: skip


def _window(row: Listed) -> Window:
    number, wm_class, title = _whole(row.id, 2**32), _text(row.class_)[:80], _text(row.title)
    return Window(number, wm_class, title, row.active, row.minimised)


def _element(row: tuple[Any, ...], caret: int) -> Element:
    tag, name, text, x, y, w, h, states, window = row
    tag = _text(tag)[:MAX_TAG].replace(" ", "-")
    held = tuple(_text(state)[:MAX_STATES] for state in states[:MAX_STATES])
    return Element(tag, _text(name), _text(text), x, y, w, h, held, _whole(window, MAX_WINDOWS), caret)


def _text(value: str | None, limit: int = MAX_TEXT) -> str:
    value = value or ""
    for sign in _TAKEN_OUT:
        value = value[:limit].replace(sign, "")
    return value


def _whole(value: int, bound: int) -> int:
    if not -bound <= value <= bound:
        raise ValueError("a small whole number is wanted")
    return value
