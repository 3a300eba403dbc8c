"""What shows on the screen, as the accessibility bus tells it.

Invariant: one observation is bounded in nodes, children per node, text and time, and holds only elements whose centre
is on the screen and not under another window. What an application fails to answer is left out, never an error.

Facts that shape the walk. Enumerating hidden subtrees costs most of a naive dump, so a node that is not SHOWING is cut
with all below it. Icon views of GTK 2 say SHOWING too late for a new file and too long for one scrolled away, so for
their icons it is the place inside the view that decides. LibreOffice 7.4 reports what lies under its root pane too high
by the height of the menu bar until the window has seen a mouse event, except for GTK's own widgets in its tool bars: so
the offset is measured each time, and ends where a child without it fits better into its parent. Below the root pane
stands a second menu bar that nobody sees, and the input line of Calc says that it does not show although it does. Of
menus, GTK 3 marks the open one as selected; GTK 2 says of no item that it shows, so there the windows of menus decide.
The menus of a web page, VS Code's among them, have no window and say themselves whether they show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import gi
from guest.errors import Refused
from guest.sheet import Sheet

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

NODES_MAX = 1200  # visited
ELEMENTS_MAX = 400  # returned
CHILDREN_MAX = 64
DEPTH_MAX = 40
TEXT_MAX = 500
_ICONS = dict.fromkeys(range(0xE000, 0xF900))  # private use: signs of an icon font, which say nothing
APPS_MAX = 16
CALL_MS = 2000
START_MS = 5000  # the same, for an application that began less than that ago
ASK_S = 6.0  # for asking every application whether it answers, before the walk
WALK_S = 3.0
MENU_FRAME = 10  # pixels, both sides together

_STATES = (
    (Atspi.StateType.FOCUSED, "foc"),
    (Atspi.StateType.CHECKED, "chk"),
    (Atspi.StateType.SELECTED, "sel"),
    (Atspi.StateType.SENSITIVE, "sen"),
    (Atspi.StateType.EDITABLE, "edt"),
    (Atspi.StateType.EXPANDED, "exp"),
)
_TEXT_ROLES = {
    "text",
    "entry",
    "icon",
    "label",
    "paragraph",
    "terminal",
    "table cell",
    "password text",
    "document text",
}
_SAID_UNNAMED = {  # something to act on, even without a name or a text
    "check box", "combo box", "document text", "entry", "password text", "push button", "radio button", "slider",
    "spin button", "text", "terminal", "toggle button",
}  # fmt: skip
_OF_TEXT = {"document text", "paragraph"}  # LibreOffice says of them that they can be edited, not that they react
_SILENT_ROLES = {  # never said
    "application", "document spreadsheet", "frame", "root pane", "scroll bar", "separator", "tool tip", "window",
}  # fmt: skip
_ICON_VIEW = "layered pane"
_FULL_BARS = {"Standard", "Formatting", "Font Name", "Font Size", "Properties", "status bar"}  # of LibreOffice
_FORMULA_BUTTONS = {"Function Wizard", "Select Function", "Formula"}
_FORMULA_BAR, _NAME_BOX, _INPUT_LINE = "Formula Tool Bar", "Name Box", "Input line"

_SELECTABLE, _SELECTED = Atspi.StateType.SELECTABLE, Atspi.StateType.SELECTED

Box = tuple[int, int, int, int]  # x, y, width, height; screen pixels


@dataclass(frozen=True)
class Spot:
    """Where in a tree a node stands."""

    window: int  # index of the X window, or -1
    depth: int = 0
    dy: int = 0  # how much too high the application reports what lies here, in pixels
    view: Box | None = None  # of the icon view that the node lies in
    above: Box | None = None  # the parent's box
    office: bool = False  # below the root pane of LibreOffice
    bar: str = ""  # the named tool bar or panel of LibreOffice that the node lies in
    opened: bool = False  # in a menu of GTK 2, while some menu is open
    web: bool = False  # in a page


def _overhang(y: int, h: int, above: Box) -> int:
    """How many pixels of a box at `y` stand out of its parent's, above or below."""
    return max(0, above[1] - y) + max(0, y + h - above[1] - above[3])


def _fills(item: Box, popup: Box) -> bool:
    """Whether an item is one of the menu in window `popup`: as wide as it, for shut menus keep their places."""
    narrower = popup[2] - item[2]
    return popup[0] <= item[0] and 0 <= narrower <= MENU_FRAME and _inside(item, popup)


def _inside(box: Box, view: Box) -> bool:
    """Whether the centre of `box` lies in `view`; both are x, y, width, height."""
    cx, cy = box[0] + box[2] // 2, box[1] + box[3] // 2
    return view[0] <= cx < view[0] + view[2] and view[1] <= cy < view[1] + view[3]


def _hidden(windows: list[dict[str, Any]]) -> set[int]:
    """Indexes of windows with nothing to act on: wholly under another, or behind a modal dialog of their program."""
    found = set()
    for at, row in enumerate(windows):
        for other in windows:
            if other["stack"] <= row["stack"]:
                continue
            wide = other["x"] <= row["x"] and row["x"] + row["w"] <= other["x"] + other["w"]
            high = other["y"] <= row["y"] and row["y"] + row["h"] <= other["y"] + other["h"]
            if (wide and high) or (other["modal"] and other["pid"] == row["pid"]):
                found.add(at)
    return found


class Walk:
    """One pass over the tree of the showing elements."""

    def __init__(self, windows: list[dict[str, Any]], width: int, height: int, popups: Callable[[], list[Box]]) -> None:
        self.windows = windows
        self._popups = cache(popups)
        self.hidden = _hidden(windows)
        self.size = (width, height)
        self.elements: list[list[Any]] = []
        self.cut = False
        self._visited = 0
        self._until = time.monotonic() + WALK_S
        self._menu_bottom = 0
        self._sheets: list[tuple[int, Any, Spot]] = []  # where in `elements` they belong
        self._current: str = ""  # the Name Box's text

    def _late(self) -> bool:
        """Whether the time for the walk is over."""
        late = time.monotonic() > self._until
        self.cut = self.cut or late
        return late

    def _left_out(self, began: float) -> None:
        """What closed or ended since `began` is only left out; an application too busy to answer cuts the walk."""
        self.cut = self.cut or time.monotonic() - began >= CALL_MS / 1000

    def _box(self, node: Any) -> Box | None:
        if node.get_component_iface() is None:
            return None
        box = node.get_extents(Atspi.CoordType.SCREEN)
        return box.x, box.y, box.width, box.height

    def _window_of(self, node: Any, box: Box | None) -> int:
        """Index of the X window of a top-level node, or -1. A title decides, then the nearest geometry."""
        pid, name = node.get_process_id(), node.get_name() or ""
        own = [at for at, row in enumerate(self.windows) if row["pid"] == pid]
        titled = [at for at in own if self.windows[at]["title"] == name]
        if not titled and node.get_role_name() == "window":
            return -1  # a menu or a tool tip: the window manager does not know it
        candidates = titled or own
        if not candidates:
            return -1
        if box is None:
            return candidates[0]
        keys = ("x", "y", "w", "h")
        return min(candidates, key=lambda at: sum(abs(self.windows[at][k] - v) for k, v in zip(keys, box, strict=True)))

    def _covered(self, x: int, y: int, window: int) -> bool:
        if window < 0:
            return False
        stack = self.windows[window]["stack"]
        return any(
            row["stack"] > stack and row["x"] <= x < row["x"] + row["w"] and row["y"] <= y < row["y"] + row["h"]
            for row in self.windows
        )

    def application(self, app: Any) -> None:
        """Walk an application's top-levels, and the sheets found there."""
        if self._late():
            return
        began, count = time.monotonic(), 0
        try:
            count = app.get_child_count()
        except GLib.Error:
            self._left_out(began)
        for at in range(min(count, CHILDREN_MAX)):
            if self._late():
                return
            began = time.monotonic()
            try:
                top = app.get_child_at_index(at)
                if top is None or not top.get_state_set().contains(Atspi.StateType.SHOWING):
                    continue
                self._menu_bottom = 0
                window = self._window_of(top, self._box(top))
                if window in self.hidden:
                    continue
                self._node(top, Spot(window))
            except GLib.Error:
                self._left_out(began)
        while self._sheets:
            (at, table, spot), began = self._sheets.pop(), time.monotonic()
            try:
                self._cells(at, table, spot)
            except GLib.Error:
                self._left_out(began)

    def _cells(self, at: int, table: Any, spot: Spot) -> None:
        found = []
        for name, text, (x, y, w, h), states in Sheet(table).cells(self._current, self._until):
            box = (x, y + spot.dy, w, h)
            if _inside(box, (0, 0, *self.size)) and not self._covered(x + w // 2, box[1] + h // 2, spot.window):
                found.append(["table-cell", name, text, *box, states, spot.window])
        self.elements[at:at] = found

    def _text(self, node: Any, role: str, name: str) -> str:
        if role not in _TEXT_ROLES or node.get_text_iface() is None:
            return ""
        count = Atspi.Text.get_character_count(node)
        text = Atspi.Text.get_text(node, 0, min(count, TEXT_MAX)).translate(_ICONS) if count > 0 else ""
        return "" if text == name else text

    def _node(self, node: Any, spot: Spot) -> None:
        """Say a node and walk what is below it."""
        if self._late():
            return
        if self._visited >= NODES_MAX or len(self.elements) >= ELEMENTS_MAX:
            self.cut = True
            return
        self._visited += 1
        states = node.get_state_set()
        if spot.depth and spot.view is None and not states.contains(Atspi.StateType.SHOWING):
            if spot.office and spot.bar == _FORMULA_BAR and node.get_name() == _INPUT_LINE:
                self._input_line(node, spot)
            if not spot.opened:
                return
        role, box = node.get_role_name(), self._box(node)
        if spot.opened and not (box and any(_fills(box, popup) for popup in self._popups())):
            return
        if spot.view is not None and (box is None or not _inside(box, spot.view)):
            return
        if role == "menu bar":
            if spot.office and self._menu_bottom:
                return
            self._menu_bottom = box[1] + box[3] if box and box[3] > 0 else 0
        if role == "root pane":
            dy = max(0, self._menu_bottom - box[1]) if box and self._menu_bottom else 0
            spot = replace(spot, office=True, dy=dy, above=None)
        if box and spot.dy and spot.above:
            fits = _overhang(box[1], box[3], spot.above) < _overhang(box[1] + spot.dy, box[3], spot.above)
            spot = replace(spot, dy=0) if fits else spot
        if role == "table" and spot.office and node.get_child_count() > CHILDREN_MAX:
            self._sheets.append((len(self.elements), node, spot))
            return
        if box:
            box = (box[0], box[1] + spot.dy, box[2], box[3])
            self._say(node, role, box, states, spot)
        web = spot.web or role == "document web"
        spot = replace(spot, view=box if role == _ICON_VIEW else None, above=box, opened=False, web=web)
        if role == "menu" and not web and states.contains(_SELECTABLE) and not states.contains(_SELECTED):
            return
        if role == "menu" and not web and not states.contains(_SELECTABLE):
            if not self._popups():
                return
            spot = replace(spot, opened=True)
        if spot.depth < DEPTH_MAX:
            self._children(node, role, spot)

    def _children(self, node: Any, role: str, spot: Spot) -> None:
        count = node.get_child_count()
        if count > CHILDREN_MAX:
            self.cut = True
        named = spot.office and role in ("panel", "tool bar")
        bar = ((node.get_name() or "") if named else role if role == "status bar" else "") or spot.bar
        below = replace(spot, depth=spot.depth + 1, bar=bar)
        for at in range(min(count, CHILDREN_MAX)):
            if self._late():
                return
            began = time.monotonic()
            try:
                child = node.get_child_at_index(at)
                if child is not None:
                    self._node(child, below)
            except GLib.Error:
                self._left_out(began)

    def _input_line(self, node: Any, spot: Spot) -> None:
        """Calc's input line: what the current cell holds, or what is being typed into it."""
        x, y, w, h = self._box(node) or (0, 0, 0, 0)
        if w <= 0 or h <= 0:
            return
        line = node.get_child_at_index(0)
        text = self._text(line, "paragraph", "") if line is not None else ""
        focused = line is not None and line.get_state_set().contains(Atspi.StateType.FOCUSED)
        states = ["sen", "edt", *(["foc"] if focused else [])]
        if not self._covered(x + w // 2, y + spot.dy + h // 2, spot.window):
            self.elements.append(["text", _INPUT_LINE, text, x, y + spot.dy, w, h, states, spot.window])

    def _say(self, node: Any, role: str, box: Box, states: Any, spot: Spot) -> None:
        x, y, w, h = box
        if role in _SILENT_ROLES or w <= 0 or h <= 0 or not _inside(box, (0, 0, *self.size)):
            return
        if self._covered(x + w // 2, y + h // 2, spot.window):
            return
        name = (node.get_name() or "").translate(_ICONS).strip()[:TEXT_MAX]
        text = self._text(node, role, name)
        if spot.office and role == "text" and not name:
            if spot.bar == _FORMULA_BAR:
                name, self._current = _NAME_BOX, text
            else:
                name = spot.bar
        if not name and not text and role not in _SAID_UNNAMED:
            return
        said = [short for state, short in _STATES if states.contains(state)]
        if spot.office and (spot.bar in _FULL_BARS or name in _FORMULA_BUTTONS):
            said.append("bar")
        if (spot.office or spot.opened) and "sen" not in said:
            said.append("sen" if role in _OF_TEXT and "edt" in said else "off")
        self.elements.append([role.replace(" ", "-"), name, text, x, y, w, h, said, spot.window])


class Tree:
    """The accessibility bus of one desktop."""

    def __init__(self) -> None:
        Atspi.init()
        Atspi.set_timeout(CALL_MS, START_MS)

    def _refresh(self) -> None:
        """Take in what applications said since: the library's cache is only as fresh as its handled events."""
        context = GLib.MainContext.default()
        for _ in range(10_000):
            if not context.iteration(False):
                return

    def ready(self) -> None:
        """Ask the registry; it is started on demand. Raises Refused when it does not answer."""
        try:
            Atspi.get_desktop(0).get_child_count()
        except GLib.Error as error:
            raise Refused("not_ready", f"the accessibility registry: {error}") from error

    def applications(self) -> list[Any]:
        """Applications on the bus; those that ended are left out."""
        self._refresh()
        desktop = Atspi.get_desktop(0)
        found = [desktop.get_child_at_index(at) for at in range(min(desktop.get_child_count(), APPS_MAX))]
        return [app for app in found if app is not None]

    def answers(self, pid: int) -> bool:
        """Whether the application of process `pid` is on the bus and its main loop answers.

        What it was sent before, it has then begun to handle: toolkits serve X and this bus from one loop.
        """
        for app in self.applications():
            try:
                if app.get_process_id() == pid:
                    app.clear_cache()
                    return app.get_child_count() > 0
            except GLib.Error:
                return False
        return False

    def observe(self, windows: list[dict[str, Any]], width: int, height: int, popups: Callable[[], list[Box]]) -> Walk:
        """All that shows, the active window's application first; `popups` tells where menus are open."""
        active = next((row["pid"] for row in windows if row["active"]), 0)
        found, cut = self._answering()
        walk = Walk(windows, width, height, popups)
        walk.cut = cut
        for _, app in sorted(((pid != active, app) for pid, app in found), key=lambda pair: pair[0]):
            walk.application(app)
        return walk

    def _answering(self) -> tuple[list[tuple[int, Any]], bool]:
        """Process and application of those that answer now, and whether any was left out.

        One call more each, and never from the cache: of an application that hangs, every further call would wait, too,
        and some of them come back empty and not as an error.
        """
        found, cut, until = [], False, time.monotonic() + ASK_S
        for app in self.applications():
            began = time.monotonic()
            if began > until:
                return found, True
            try:
                app.get_id()
                pid = app.get_process_id()
            except GLib.Error:
                pid = 0  # gone, or it hangs
            silent = time.monotonic() - began >= CALL_MS / 1000
            cut = cut or silent
            if pid and not silent:
                found.append((pid, app))
        return found, cut
