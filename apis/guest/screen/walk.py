"""One pass over the accessibility tree: the elements that show.

Invariant: the pass is bounded in nodes, children per node, text and time. An element's centre is on the screen, and no
other window, menu or tool tip lies on it. What an application fails to answer is left out and counted, never an error.

These facts shape the walk:

- Enumerating hidden subtrees costs most of a naive dump. So a node that is not SHOWING is cut with all below it.
- Icon views of GTK 2 say SHOWING too late for a new file, and too long for a file scrolled away. So the place inside
  the view decides for their icons.
- LibreOffice 7.4 reports what lies under its root pane too high by the height of the menu bar. It does so until the
  window has seen a mouse event, and not for GTK's own widgets in its tool bars. So the offset is measured each time,
  and ends where a child without it fits better into its parent.
- Below LibreOffice's root pane is a second menu bar that does not show.
- The input line of Calc says that it does not show although it does.
- GTK 3 marks the open menu as selected. GTK 2 says of no item that it shows, so the windows of menus decide there.
- The menus of a web page, VS Code's among them, have no window and say themselves whether they show.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import gi
from guest.screen.nodes import (
    CHILDREN_MAX,
    CONTROLS,
    Box,
    Shift,
    box_of,
    common,
    covered,
    fills,
    held,
    hidden,
    inside,
    name_of,
    overhang,
    plain,
    scrolled,
    showing,
    text_of,
    under,
    value_of,
)
from guest.screen.office import HOLDERS, OTHERS, Gone, Known, Sheet, Steady

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

NODES_MAX = 1200  # visited
ELEMENTS_MAX = 400  # returned
DEPTH_MAX = 40
CALL_MS = 2000
WALK_S = 3.0

_STATES = (
    (Atspi.StateType.FOCUSED, "foc"),
    (Atspi.StateType.CHECKED, "chk"),
    (Atspi.StateType.SELECTED, "sel"),
    (Atspi.StateType.SENSITIVE, "sen"),
    (Atspi.StateType.EDITABLE, "edt"),
    (Atspi.StateType.EXPANDED, "exp"),
)
_OF_TEXT = {"document text", "paragraph"}  # LibreOffice says of them that they can be edited, not that they react
_ENTRIES = {"entry", "text"}
# Roles that every toolkit says the state of, so that without it they are surely disabled.
_SAY_SENSITIVE = CONTROLS | _ENTRIES | {"check menu item", "link", "menu", "menu item", "radio menu item"}
_SILENT_ROLES = {  # never said
    "application", "document spreadsheet", "frame", "root pane", "scroll bar", "separator", "tool tip", "window",
}  # fmt: skip
_FIXED = {"gtk", "GAIL"}  # toolkits
_ICON_VIEW = "layered pane"
_CLOSE = "Close Document"  # of LibreOffice, next to its menus
_CLIPS = {"scroll pane", "viewport", "document web", "document text", _ICON_VIEW}  # what sticks out of them is cut off
_FULL_BARS = {"Standard", "Formatting", "Font Name", "Font Size", "Properties", "status bar"}  # of LibreOffice
_FORMULA_BUTTONS = {"Function Wizard", "Select Function", "Formula"}
_FORMULA_BAR, _NAME_BOX, _INPUT_LINE = "Formula Tool Bar", "Name Box", "Input line"

_SELECTABLE, _SELECTED = Atspi.StateType.SELECTABLE, Atspi.StateType.SELECTED
_TO_CHOOSE = (_SELECTABLE, Atspi.StateType.FOCUSABLE)


_BARS = {"tool bar", "menu", "menu bar", "panel", "root pane"}  # whose children that do not show are no content
_UNNAMED = _ENTRIES | {"document text", "password text", "terminal"}  # said even without a name or a text


class Spot(NamedTuple):
    """Where in a tree a node is."""

    window: int  # index of the X window, or -1
    clip: Box  # the part of the screen that it can show in
    depth: int = 0
    dy: int = 0  # how much too high the application reports what lies here, in pixels
    view: Box | None = None  # of the icon view that the node lies in
    shift: Shift = (0, 0)  # what that one is scrolled by
    above: Box | None = None  # the parent's box
    office: bool = False  # below the root pane of LibreOffice
    steady: bool = False  # and in none of its documents, lists and menus
    fixed: bool = False  # of a program whose objects keep their roles
    bar: str = ""  # the named tool bar or panel of LibreOffice that the node lies in
    opened: bool = False  # in a menu of GTK 2, while some menu is open
    web: bool = False  # in a page
    popup: bool = False  # in a menu or a list of choices, which no other menu covers
    behind: bool = False  # behind a modal dialog that can't be read


class Page(NamedTuple):
    """A web page that shows, and which of the elements are in it."""

    window: int
    url: str
    title: str
    box: Box
    first: int
    last: int


def _second(node: Any, role: str, box: Box, spot: Spot) -> bool:
    """Whether a control without a name is a part of the one before or in it: an arrow, or a list with its own entry."""
    if role == "combo box":
        inner = (node.get_child_at_index(at) for at in range(min(node.get_child_count(), 4)))
        return any(child is not None and child.get_role_name() in _ENTRIES for child in inner)
    return role == "toggle button" and not spot.web and (spot.popup or 4 * box[2] < 3 * box[3])


class Walk:
    """One pass over the tree of the showing elements.

    An element: [tag, name, text, x, y, w, h, states, window, caret]; the caret is a place in the text or -1.
    """

    def __init__(
        self,
        windows: list[dict[str, Any]],
        width: int,
        height: int,
        popups: Callable[[], list[Box]],
        texts: Known,
        *,
        steady: Steady,
    ) -> None:
        self.windows = windows
        self._popups = cache(popups)
        self._texts = texts  # of the sheet in front
        self._steady = steady
        self._names: dict[Any, str] = {}  # of LibreOffice's holders, which are asked for twice
        self._gone = hidden(windows)
        self._held = held(windows) - self._gone
        self.hidden = self._gone | self._held  # indexes of windows with nothing to act on
        self._size = (0, 0, width, height)
        self.elements: list[list[Any]] = []
        self.cut = False
        self.pages: list[Page] = []
        self.beyond = 0  # children that are scrolled out of view
        self._visited = 0
        self._until = time.monotonic() + WALK_S
        self._menu_bottom = 0
        self._sheets: list[tuple[int, Any, Spot]] = []  # where in `elements` they belong
        self._current: str = ""  # the Name Box's text
        self._behind: list[tuple[Any, Spot]] = []

    def _late(self) -> bool:
        """Whether the time for the walk is over."""
        late = time.monotonic() > self._until
        self.cut = self.cut or late
        return late

    def _left_out(self, began: float) -> None:
        """What closed or ended since `began` is only left out; an application too busy to answer cuts the walk."""
        self.cut = self.cut or time.monotonic() - began >= CALL_MS / 1000

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

    def _covered(self, box: Box, spot: Spot) -> bool:
        """Whether something else lies on the centre of an element."""
        x, y = box[0] + box[2] // 2, box[1] + box[3] // 2
        if covered(x, y, spot.window, self.windows):
            return True
        if spot.popup or not under(x, y, self._popups()):
            return False
        return not any(fills(box, popup) for popup in self._popups())

    def application(self, app: Any) -> None:
        """Walk an application's top-levels, and the sheets found there."""
        if self._late():
            return
        began, count, fixed = time.monotonic(), 0, False
        try:
            fixed = app.get_toolkit_name() in _FIXED
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
                window = self._window_of(top, box_of(top))
                spot = Spot(window, self._size, popup=window < 0, fixed=fixed)
                if window in self._held:
                    self._behind.append((top, spot._replace(behind=True)))
                if window not in self.hidden:
                    self._top(top, spot)
            except GLib.Error:
                self._left_out(began)

    def _top(self, top: Any, spot: Spot) -> None:
        self._menu_bottom = 0
        self._node(top, spot)
        while self._sheets:
            (at, table, spot), began = self._sheets.pop(), time.monotonic()
            try:
                self._cells(at, table, spot)
            except GLib.Error:
                self._left_out(began)

    def behind(self) -> None:
        """Walk what a modal dialog holds, where nothing of that dialog could be read."""
        active = next((at for at, row in enumerate(self.windows) if row["active"]), -1)
        if active < 0 or any(element[8] in (active, -1) for element in self.elements):
            return
        for top, spot in self._behind:
            began = time.monotonic()
            try:
                self._top(top, spot)
            except GLib.Error:
                self._left_out(began)

    def _cells(self, at: int, table: Any, spot: Spot) -> None:
        rows = []
        active = spot.window >= 0 and self.windows[spot.window]["active"]
        known = self._texts if active else (lambda first, last: None)
        for name, text, (x, y, w, h), states in Sheet(table).cells(self._current, known, self._until):
            box = (x, y + spot.dy, w, h)
            if inside(box, self._size) and not self._covered(box, spot):
                rows.append(["table-cell", name, text, *box, states, spot.window, -1])
        self.elements[at:at] = rows

    def _node(self, node: Any, spot: Spot, *, remembered: bool = False) -> None:
        """Say a node and walk what is below it. Raises Gone for one `remembered` that says so of itself."""
        if self._late():
            return
        if self._visited >= NODES_MAX or len(self.elements) >= ELEMENTS_MAX:
            self.cut = True
            return
        self._visited += 1
        states = node.get_state_set()
        if remembered and states.contains(Atspi.StateType.DEFUNCT):
            raise Gone
        if spot.depth and spot.view is None and not states.contains(Atspi.StateType.SHOWING):
            if spot.office and spot.bar == _FORMULA_BAR and node.get_name() == _INPUT_LINE:
                self._input_line(node, spot)
            if not spot.opened:
                return
        fixed = spot.steady or (spot.fixed and not spot.office and not spot.web)
        role = self._steady.role(node) if fixed else node.get_role_name()
        box = box_of(node)
        if spot.opened and not (box and any(fills(box, popup) for popup in self._popups())):
            return
        if spot.view is not None:
            box = (box[0] - spot.shift[0], box[1] - spot.shift[1], box[2], box[3]) if box else None
            if box is None or not inside(box, spot.view):
                self.beyond += 1
                return
        if role == "menu bar":
            if spot.office and self._menu_bottom:
                return
            self._menu_bottom = box[1] + box[3] if box and box[3] > 0 else 0
        if role == "root pane":
            dy = max(0, self._menu_bottom - box[1]) if box and self._menu_bottom else 0
            spot = spot._replace(office=True, steady=True, dy=dy, above=None)
        if box and spot.dy and spot.above:
            fits = overhang(box[1], box[3], spot.above) < overhang(box[1] + spot.dy, box[3], spot.above)
            spot = spot._replace(dy=0) if fits else spot
        if role == "table" and spot.office and node.get_child_count() > CHILDREN_MAX:
            self._sheets.append((len(self.elements), node, spot))
            return
        if box:
            box = (box[0], box[1] + spot.dy, box[2], box[3])
            if role in _CLIPS:
                spot = spot._replace(clip=common(box, spot.clip) or spot.clip)
            self._say(node, role, box, states, spot)
        self._below(node, role, box, states, spot)

    def _below(self, node: Any, role: str, box: Box | None, states: Any, spot: Spot) -> None:
        """Walk what is below a node, of menus only below those that are open."""
        web = spot.web or role == "document web"
        page = web and not spot.web and box is not None
        first = len(self.elements)
        popup = spot.popup or role == "combo box" or (role == "menu" and not web)
        steady = spot.steady and not role.startswith(OTHERS)
        spot = spot._replace(view=None, above=box, opened=False, web=web, popup=popup, steady=steady)
        if role == _ICON_VIEW and box:
            spot = spot._replace(view=box, shift=scrolled(node))
        if role == "menu" and not web and states.contains(_SELECTABLE) and not states.contains(_SELECTED):
            return
        if role == "menu" and not web and not states.contains(_SELECTABLE):
            if not self._popups():
                return
            spot = spot._replace(opened=True)
        if spot.depth < DEPTH_MAX:
            self._children(node, role, box, spot)
        if page and box:
            url = Atspi.Document.get_document_attribute_value(node, "URI")
            self.pages.append(Page(spot.window, str(url), str(node.get_name() or ""), box, first, len(self.elements)))

    def _children(self, node: Any, role: str, box: Box | None, spot: Spot) -> None:
        count = node.get_child_count()
        named = spot.office and role in ("panel", "tool bar")
        bar = (self._name(node, spot) if named else role if role == "status bar" else "") or spot.bar
        below = spot._replace(depth=spot.depth + 1, bar=bar)
        if spot.steady and count <= CHILDREN_MAX and (role in HOLDERS or (role == "tool bar" and bar != _FORMULA_BAR)):
            self._remembered(node, role, box, count, below)
            return
        shows = self._shows(box, spot)
        places = showing(node, count, shows, spot.shift if spot.view else (0, 0), self._late)
        self.beyond += count - len(places) if role not in _BARS else 0
        for at in places:
            if self._late():
                return
            began = time.monotonic()
            try:
                child = node.get_child_at_index(at)
                if child is not None:
                    self._node(child, below)
            except GLib.Error:
                self._left_out(began)

    def _remembered(self, node: Any, role: str, box: Box | None, count: int, below: Spot) -> None:
        """Walk what is below a holder or a tool bar, asking only for what may have changed."""
        of_bar = role == "tool bar" and box is not None and not self._popups()
        if of_bar and box:
            children = self._steady.bar(node, count, (box[0], box[1] - below.dy, box[2], box[3]))
        else:
            children = self._steady.children(node, count)
        for at, child in enumerate(children):
            if self._late():
                return
            began = time.monotonic()
            try:
                try:
                    if child is not None:
                        self._node(child, below, remembered=not of_bar)
                except Gone:
                    if (other := self._steady.replaced(node, at)) is not None:
                        self._node(other, below)
            except GLib.Error:
                self._left_out(began)

    def _name(self, node: Any, spot: Spot) -> str:
        if not spot.steady:
            return str(node.get_name() or "")
        if node not in self._names:
            self._names[node] = str(node.get_name() or "")
        return self._names[node]

    def _shows(self, box: Box | None, spot: Spot) -> Box | None:
        """The part of an element that shows, where its application says that this is."""
        seen = common(box, spot.clip) if box else None
        return (seen[0], seen[1] - spot.dy, seen[2], seen[3]) if seen else None

    def _input_line(self, node: Any, spot: Spot) -> None:
        """Calc's input line: what the current cell holds, or what is being typed into it."""
        x, y, w, h = box_of(node) or (0, 0, 0, 0)
        if w <= 0 or h <= 0:
            return
        line = node.get_child_at_index(0)
        text, caret = text_of(line, "paragraph", None) if line is not None else ("", -1)
        focused = line is not None and line.get_state_set().contains(Atspi.StateType.FOCUSED)
        states = ["sen", "edt", *(["foc"] if focused else [])]
        if not self._covered((x, y + spot.dy, w, h), spot):
            self.elements.append(["text", _INPUT_LINE, text, x, y + spot.dy, w, h, states, spot.window, caret])

    def _say(self, node: Any, role: str, box: Box, states: Any, spot: Spot) -> None:
        if role in _SILENT_ROLES or box[2] <= 0 or box[3] <= 0 or not inside(box, self._size):
            return
        if self._covered(box, spot._replace(popup=spot.popup or role.startswith("document"))):
            return
        name = plain(self._name(node, spot)).strip()
        text, caret = text_of(node, role, self._shows(box, spot))
        text = "" if text == name else text
        if role == "icon" and not name:
            name, text = text, ""  # what an icon is called is written below it
        if spot.office and role == "text" and not name:
            if spot.bar == _FORMULA_BAR:
                name, self._current = _NAME_BOX, text
            else:
                name = spot.bar
        if not text:
            text, caret = value_of(node, role), -1
            text = "" if text == name else text
        given = not name and (role in CONTROLS or (role in _ENTRIES and not text))
        if given and _second(node, role, box, spot):
            return
        if given:
            name = name_of(node, role, spot.office)
        if not name and not text and role not in _UNNAMED:
            return
        shorts = [short for state, short in _STATES if states.contains(state)]
        if (given and name == _CLOSE) or (
            spot.office and (given or spot.bar in _FULL_BARS or name in _FORMULA_BUTTONS)
        ):
            shorts.append("bar")
        if "sen" not in shorts and (spot.office or spot.opened or role in _SAY_SENSITIVE):
            shorts.append("sen" if role in _OF_TEXT and "edt" in shorts else "off")
        if role == "panel" and "edt" not in shorts and any(states.contains(state) for state in _TO_CHOOSE):
            shorts.append("cho")  # a slide of Impress' slide pane, and no panel that only holds others
        if spot.behind:
            shorts.append("behind")
        self.elements.append([role.replace(" ", "-"), name, text, *box, shorts, spot.window, caret])
