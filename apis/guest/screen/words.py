"""What a node says: its name, its text and its value.

Invariant: at most `TEXT_MAX` characters each. Of a longer text a part that shows is said, around the caret where the
caret shows. "..." stands where text before or after the part is left out.
"""

from __future__ import annotations

from typing import Any

import gi
from guest.screen.boxes import Box

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi  # noqa: E402 - the version must be chosen first

TEXT_MAX = 500
LONG = 60  # characters, from which on the caret's place is asked for
CUT = "..."
_ICONS = dict.fromkeys(range(0xE000, 0xF900))  # private use: signs of an icon font, which say nothing
_EDGE = 3  # pixels inside a corner
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
    """The first character that shows and the one after the last; all where that is not told."""
    if view is None:
        return 0, count
    x, y, w, h = view
    first = Atspi.Text.get_offset_at_point(node, x + _EDGE, y + _EDGE, Atspi.CoordType.SCREEN)
    last = Atspi.Text.get_offset_at_point(node, x + w - _EDGE, y + h - _EDGE, Atspi.CoordType.SCREEN)
    return max(0, first), (last + 1 if last >= 0 else count)


def value_of(node: Any, role: str) -> str:
    """What a field, a list of choices, a slider or a bar is set to; "" where that is not told."""
    if role == "combo box":
        return plain(_choice(node, 3))
    if role not in _NUMBERS or node.get_value_iface() is None:
        return ""
    said = _attribute(node, "valuetext")
    return said or f"{Atspi.Value.get_current_value(node):.6g}"


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
            found = _choice(child, depth - 1)
            if found:
                return found
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
    said = plain(node.get_description()).strip().partition("\n")[0]
    hints = () if said or plainly else _HINTS
    said = said or next((hint for key in hints if (hint := _attribute(node, key))), "")
    return said or (role if role in CONTROLS else "")


def _attribute(node: Any, key: str) -> str:
    return plain((node.get_attributes() or {}).get(key)).strip()
