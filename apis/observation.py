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


class NeatFrame(msgspec.Struct, frozen=True):
    """An observation all of whose elements are within the bounds as they stand; `from_guest` cuts the rest."""

    windows: list[Listed]
    elements: list[Element]
    cut: bool = False
    carets: list[tuple[int, int]] = []
    beyond: int = 0
    info: str | None = None


_NEAT = msgspec.msgpack.Decoder(NeatFrame)
_TAKEN_OUT = "\ufffc", "\ufffd"  # for objects in a text, and for bytes that are none


def neat(raw: bytes) -> NeatFrame | None:
    """The guest's MessagePack where its elements need no cutting; None where they do, or have another shape.

    It costs a tenth of what `from_guest` takes to look at each value. Raises msgspec.DecodeError for bytes that are no
    MessagePack.
    """
    if any(sign.encode() in raw for sign in _TAKEN_OUT):
        return None
    try:
        frame = _NEAT.decode(raw)
    except msgspec.ValidationError:
        return None
    return None if any(" " in tag for tag in {element.tag for element in frame.elements}) else frame


def from_guest(frame: Any, screen: tuple[int, int] = SCREEN) -> Observation:
    """The guest agent's answer to `observe` on a `screen` of so many pixels, checked, cut and filtered.

    `frame`, or what its struct means, is `{"windows": [{"id", "class", "title", "active", "minimised"}],
    "elements": [[tag, name, text, x, y, w, h, states, window]], "info": text, "carets": [[element's index, place]],
    "cut": bool, "beyond": n}`, of which "minimised" and the last four may be missing; unknown keys are ignored. Raises
    ProtocolError when it is anything else.
    """
    read: list[Element] | None = None
    try:
        if isinstance(frame, NeatFrame):
            read = frame.elements
            frame = {name: getattr(frame, name) for name in frame.__struct_fields__} | {
                "windows": msgspec.to_builtins(frame.windows)
            }
        elif isinstance(frame, msgspec.Struct):
            frame = msgspec.to_builtins(frame)
        windows = tuple(_window(row) for row in frame["windows"][:MAX_WINDOWS])
        carets = {_whole(at, MAX_ELEMENTS): _whole(place, MAX_TEXT) for at, place in frame.get("carets", ())}
        rows = frame["elements"][:MAX_ELEMENTS]
        if read is None:
            elements = [_element(row, carets.get(at, -1)) for at, row in enumerate(rows) if not _vast(row)]
        else:
            elements = [
                msgspec.structs.replace(row, caret=carets[at]) if at in carets else row for at, row in enumerate(rows)
            ]
        info = _text(frame.get("info"), MAX_INFO)
        cut = frame.get("cut") is True or len(frame["elements"]) > MAX_ELEMENTS
        beyond = max(0, _whole(frame.get("beyond", 0), 2**31))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ProtocolError(f"the guest's observation has another shape: {type(error).__name__}") from error
    usable_ones = without_duplicates([element for element in elements if usable(element)])
    return Observation(
        windows=windows, elements=_sharing(usable_ones), info=info, cut=cut, beyond=beyond, screen=screen
    )


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


def _window(row: Any) -> Window:
    return Window(
        number=_whole(row["id"], 2**32),
        wm_class=_text(row["class"])[:80],
        title=_text(row["title"]),
        active=row["active"] is True,
        minimised=row.get("minimised") is True,
    )


def _vast(row: Any) -> bool:
    """Whether an element has more pixels than any screen, as a page of a very long text has: nothing to point at."""
    return any(type(value) is int and abs(value) > MAX_PIXEL for value in row[3:7])


def _element(row: Any, caret: int) -> Element:
    tag, name, text, x, y, w, h, states, window = row[:9]
    return Element(
        tag=_text(tag)[:MAX_TAG].replace(" ", "-"),
        name=_text(name),
        text=_text(text),
        x=_whole(x, MAX_PIXEL),
        y=_whole(y, MAX_PIXEL),
        w=_whole(w, MAX_PIXEL),
        h=_whole(h, MAX_PIXEL),
        states=tuple(_text(state)[:MAX_STATES] for state in states[:MAX_STATES]),
        window=_whole(window, MAX_WINDOWS),
        caret=caret,
    )


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a string is wanted")
    for sign in _TAKEN_OUT:
        value = value[:limit].replace(sign, "")
    return value


def _whole(value: Any, bound: int) -> int:
    if type(value) is not int or not -bound <= value <= bound:
        raise ValueError("a small whole number is wanted")
    return value
