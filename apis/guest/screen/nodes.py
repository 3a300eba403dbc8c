"""Nodes of the accessibility tree: where they are, which children show, and what a node says.

Boxes are x, y, width and height in screen pixels. Of few children all are given, of many at most `SHOWN_MAX`: those at
points of the visible part, and their visible neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi  # noqa: E402 - the version must be chosen first

MENU_FRAME = 10  # pixels, both sides together

Box = tuple[int, int, int, int]


def overhang(y: int, h: int, above: Box) -> int:
    """How many pixels of a box at `y` stand out of its parent's, above or below."""
    return max(0, above[1] - y) + max(0, y + h - above[1] - above[3])


def holds(view: Box, x: int, y: int) -> bool:
    """Whether a point lies in `view`."""
    return view[0] <= x < view[0] + view[2] and view[1] <= y < view[1] + view[3]


def inside(box: Box, view: Box) -> bool:
    """Whether the centre of `box` lies in `view`."""
    return holds(view, box[0] + box[2] // 2, box[1] + box[3] // 2)


def common(box: Box, view: Box) -> Box | None:
    """What two boxes share, None where that is nothing."""
    x, y = max(box[0], view[0]), max(box[1], view[1])
    w, h = min(box[0] + box[2], view[0] + view[2]) - x, min(box[1] + box[3], view[1] + view[3]) - y
    return (x, y, w, h) if w > 0 and h > 0 else None


def fills(item: Box, popup: Box) -> bool:
    """Whether an item is one of the menu in window `popup`: as wide as it, for shut menus keep their places."""
    narrower = popup[2] - item[2]
    return popup[0] <= item[0] and 0 <= narrower <= MENU_FRAME and inside(item, popup)


def under(x: int, y: int, popups: Iterable[Box]) -> bool:
    """Whether a point lies under a menu, a popup or a tool tip."""
    return any(holds(popup, x, y) for popup in popups)


def covered(x: int, y: int, window: int, windows: list[dict[str, Any]]) -> bool:
    """Whether another window that shows lies on a point of the window at index `window`."""
    if window < 0:
        return False
    stack = windows[window]["stack"]
    return any(
        row["stack"] > stack and not row["minimised"] and holds((row["x"], row["y"], row["w"], row["h"]), x, y)
        for row in windows
    )


def hidden(windows: list[dict[str, Any]]) -> set[int]:
    """Indexes of windows that show nothing: minimised, or wholly under another one."""
    indexes = {at for at, row in enumerate(windows) if row["minimised"]}
    for at, row in enumerate(windows):
        for other in windows:
            if other["stack"] <= row["stack"] or other["minimised"]:
                continue
            wide = other["x"] <= row["x"] and row["x"] + row["w"] <= other["x"] + other["w"]
            high = other["y"] <= row["y"] and row["y"] + row["h"] <= other["y"] + other["h"]
            if wide and high:
                indexes.add(at)
    return indexes


def held(windows: list[dict[str, Any]]) -> set[int]:
    """Indexes of windows that a modal dialog of their program keeps from being acted on."""
    return {
        at
        for at, row in enumerate(windows)
        for other in windows
        if other["stack"] > row["stack"] and not other["minimised"] and other["modal"] and other["pid"] == row["pid"]
    }


CHILDREN_MAX = 96  # up to here all are given
SHOWN_MAX = 256
HEADERS_MAX = 16
_COLUMNS, _ROWS = 4, 14  # of the points that are looked at
_EDGE = 4  # pixels
_MISSES = 4  # neighbours that do not show, after which no more is looked for
_CLIMB = 12  # levels between what is found at a point and the child that holds it
_SCROLLED_MAX = 1 << 24  # pixels

Shift = tuple[int, int]  # pixels that the content is scrolled by, to the right and down


def box_of(node: Any) -> Box | None:
    """A node's place; None for what has none."""
    if node.get_component_iface() is None:
        return None
    box = node.get_extents(Atspi.CoordType.SCREEN)
    return box.x, box.y, box.width, box.height


def scrolled(view: Any) -> Shift:
    """How far the scroll bars of an icon view are."""
    parent = view.get_parent()
    dx = dy = 0
    for at in range(min(parent.get_child_count(), 4) if parent is not None else 0):
        bar = parent.get_child_at_index(at)
        if bar is None or bar.get_role_name() != "scroll bar" or bar.get_value_iface() is None:
            continue
        value, box = Atspi.Value.get_current_value(bar), box_of(bar)
        if box is None or box[0] < 0 or not 0 <= value <= _SCROLLED_MAX:
            continue  # it does not show: there is nothing to scroll
        if box[3] > box[2]:
            dy = int(value)
        else:
            dx = int(value)
    return dx, dy


def showing(node: Any, count: int, view: Box | None, shift: Shift, late: Callable[[], bool]) -> list[int]:
    """Indexes of the children to look at, of `count`; `view` is the part of the node that shows."""
    if count <= CHILDREN_MAX:
        return list(range(count))
    hits = _hits(node, view, shift, late) if view is not None else set()
    if not hits:
        return list(range(CHILDREN_MAX))
    indexes = set(_headers(node)) | hits
    columns = _columns(node)
    for hit in sorted(hits):
        for step in (-1, 1) if columns < 2 else (-columns, columns, -1, 1):
            misses, at = 0, hit + step
            while 0 <= at < count and misses < _MISSES and len(indexes) < SHOWN_MAX and not late():
                if at in hits:
                    break
                if at not in indexes:
                    shows = _shows(node, at, view, shift)
                    misses = 0 if shows else misses + 1
                    indexes |= {at} if shows else set()
                at += step
    return sorted(indexes)[:SHOWN_MAX]


def _shows(node: Any, at: int, view: Box | None, shift: Shift) -> bool:
    child = node.get_child_at_index(at)
    box = box_of(child) if child is not None else None
    return bool(box and view and common((box[0] - shift[0], box[1] - shift[1], box[2], box[3]), view))


def _columns(node: Any) -> int:
    """How many columns a table has, hidden ones among them: its next row begins so many children further."""
    return int(Atspi.Table.get_n_columns(node)) if node.get_table_iface() is not None else 0


def _headers(node: Any) -> range:
    """A table's titles, which are its first children and found at no point."""
    for at in range(HEADERS_MAX):
        child = node.get_child_at_index(at)
        if child is None or child.get_role_name() != "table column header":
            return range(at)
    return range(HEADERS_MAX)


def _hits(node: Any, view: Box, shift: Shift, late: Callable[[], bool]) -> set[int]:
    """Indexes of the children at the points of a grid over `view`."""
    indexes: set[int] = set()
    known: list[Box] = []
    wide, high = max(1, view[2] - 2 * _EDGE), max(1, view[3] - 2 * _EDGE)
    for row in range(_ROWS):
        y = view[1] + _EDGE + row * high // (_ROWS - 1)
        for column in range(_COLUMNS):
            x = view[0] + _EDGE + (2 * column + 1) * wide // (2 * _COLUMNS)
            if late():
                return indexes
            if any(holds(box, x, y) for box in known):
                continue
            child = _child_at(node, x + shift[0], y + shift[1])
            if child is None:
                continue
            at = child.get_index_in_parent()
            box = box_of(child)
            if at >= 0 and box is not None:
                indexes.add(at)
                known.append((box[0] - shift[0], box[1] - shift[1], box[2], box[3]))
    return indexes


def _child_at(node: Any, x: int, y: int) -> Any:
    """The child of `node` that a point lies in, however deep the application looks; None where there is none."""
    candidate = Atspi.Component.get_accessible_at_point(node, x, y, Atspi.CoordType.SCREEN)
    for _ in range(_CLIMB):
        if candidate is None or candidate == node:
            return None
        parent = candidate.get_parent()
        if parent == node:
            return candidate
        candidate = parent
    return None


TEXT_MAX = 500
LONG = 60  # characters, from which on the caret's place is asked for
CUT = "..."
_ICONS = dict.fromkeys(range(0xE000, 0xF900))  # private use: signs of an icon font, which say nothing
_INSIDE = 3  # pixels inside a corner
TEXT_ROLES = {
    "text",
    "entry",
    "icon",
    "label",
    "paragraph",
    "terminal",
    "table cell",
    "password text",
    "document text",
    "spin button",
    "date editor",
}
_NUMBERS = {"slider", "spin button", "progress bar", "level bar", "dial"}
CONTROLS = {  # something to act on, or that tells a state, even without a name or a text
    "check box", "combo box", "dial", "level bar", "password text", "progress bar", "push button", "radio button",
    "slider", "spin button", "switch", "toggle button",
}  # fmt: skip
_HINTS = ("placeholder-text", "placeholder")
_CHOICES_MAX = 64


def plain(text: str | None) -> str:
    """Without the signs of icon fonts, and bounded."""
    return (text or "").translate(_ICONS)[:TEXT_MAX]


def part(first: int, last: int, count: int, caret: int) -> tuple[int, int]:
    """Which characters of `count` are said, when the characters from `first` up to `last` show."""
    if not 0 <= first < last <= count:
        first, last = (0, count)
    room = TEXT_MAX - 2 * len(CUT)
    if last - first > room:
        if first <= caret <= last:
            first = max(first, min(caret - room // 2, last - room))
        last = first + room
    return first, last


def text_of(node: Any, role: str, view: Box | None) -> tuple[str, int]:
    """A node's text and the caret's place in it, -1 where it is not in it or not asked for.

    `view` is the part of the node that shows.
    """
    if role not in TEXT_ROLES or node.get_text_iface() is None:
        return "", -1
    count = Atspi.Text.get_character_count(node)
    if count <= 0:
        return "", -1
    caret = Atspi.Text.get_caret_offset(node) if count > LONG else -1
    if count <= TEXT_MAX:
        return Atspi.Text.get_text(node, 0, count).translate(_ICONS), caret
    first, last = part(*_shown(node, view, count), count, caret)
    text = Atspi.Text.get_text(node, first, last).translate(_ICONS)
    before, after = CUT if first > 0 else "", CUT if last < count else ""
    return before + text + after, (caret - first + len(before) if first <= caret <= last else -1)


def _shown(node: Any, view: Box | None, count: int) -> tuple[int, int]:
    """The first character that shows and the one after the last; all where that is not known."""
    if view is None:
        return 0, count
    x, y, w, h = view
    first = Atspi.Text.get_offset_at_point(node, x + _INSIDE, y + _INSIDE, Atspi.CoordType.SCREEN)
    last = Atspi.Text.get_offset_at_point(node, x + w - _INSIDE, y + h - _INSIDE, Atspi.CoordType.SCREEN)
    return max(0, first), (last + 1 if last >= 0 else count)


def value_of(node: Any, role: str) -> str:
    """What a field, a list of choices, a slider or a bar is set to; "" where that is not known."""
    if role == "combo box":
        return plain(_choice(node, 3))
    if role not in _NUMBERS or node.get_value_iface() is None:
        return ""
    words = _attribute(node, "valuetext")
    return words or f"{Atspi.Value.get_current_value(node):.6g}"


def _choice(node: Any, depth: int) -> str:
    """The name of what is chosen below a list of choices."""
    selection = node.get_selection_iface()
    if selection is not None and Atspi.Selection.get_n_selected_children(node) > 0:
        chosen = Atspi.Selection.get_selected_child(node, 0)
        if chosen is not None and (name := chosen.get_name() or ""):
            return str(name)
    for at in range(min(node.get_child_count(), _CHOICES_MAX) if depth else 0):
        child = node.get_child_at_index(at)
        if child is None:
            continue
        if child.get_state_set().contains(Atspi.StateType.SELECTED) and child.get_name():
            return str(child.get_name())
        if child.get_role_name() in ("menu", "list", "list box", "table", "text", "entry"):
            below = _choice(child, depth - 1)
            if below:
                return below
    return ""


def name_of(node: Any, role: str, plainly: bool) -> str:
    """A name for what has none: its label's, its description, its hint, or for a control what it is.

    LibreOffice takes milliseconds to tell what its own widgets are labelled by, and has named them so already: of those
    it is asked `plainly`.
    """
    for relation in (() if plainly else node.get_relation_set()) or ():
        if relation.get_relation_type() == Atspi.RelationType.LABELLED_BY and relation.get_n_targets() > 0:
            name = plain(relation.get_target(0).get_name()).strip()
            if name:
                return name
    text = plain(node.get_description()).strip().partition("\n")[0]
    hints = () if text or plainly else _HINTS
    text = text or next((hint for key in hints if (hint := _attribute(node, key))), "")
    return text or (role if role in CONTROLS else "")


def _attribute(node: Any, key: str) -> str:
    return plain((node.get_attributes() or {}).get(key)).strip()
