"""What a field adds by itself while a user types: the rest of a name that it knows, selected behind the caret.

Invariant: bounded in nodes and time, and only looks. Typing replaces what is selected and selects nothing. So the
application added a text that is selected behind the last stroke, up to the end of the field.
"""

from __future__ import annotations

import time
from typing import Any

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

NODES_MAX = 1200
CHILDREN_MAX = 64
DEPTH_MAX = 24
LOOK_S = 1.0
# What holds documents, files and choices, many of them, and no field that completes.
_PASSED = {
    "document frame", "document presentation", "document spreadsheet", "document text", "document web", "layered pane",
    "list", "list box", "menu bar", "page tab list", "table", "tree", "tree table",
}  # fmt: skip
_FIELDS = {"entry", "text"}


def added(app: Any, typed: str) -> bool | None:
    """Whether the field with the focus goes on behind what was `typed`; None where none is found. Raises GLib.Error."""
    search = _Search()
    for at in range(min(app.get_child_count(), CHILDREN_MAX)):
        top = app.get_child_at_index(at)
        if top is not None and top.get_state_set().contains(Atspi.StateType.ACTIVE):
            field = search.focused(top, 0)
            if field is not None:
                return _goes_on(field, typed)
    return None


class _Search:
    """One look for the field that has the focus."""

    def __init__(self) -> None:
        self._left = NODES_MAX
        self._until = time.monotonic() + LOOK_S

    def focused(self, node: Any, depth: int) -> Any:
        """The field, or None."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX or time.monotonic() > self._until:
            return None
        states, role = node.get_state_set(), node.get_role_name()
        if role in _PASSED or (depth and not states.contains(Atspi.StateType.SHOWING)):
            return None
        if role in _FIELDS and states.contains(Atspi.StateType.FOCUSED):
            return node if states.contains(Atspi.StateType.EDITABLE) else None
        for at in range(min(node.get_child_count(), CHILDREN_MAX)):
            try:
                child = node.get_child_at_index(at)
                found = self.focused(child, depth + 1) if child is not None else None
            except GLib.Error:  # it is gone
                continue
            if found is not None:
                return found
        return None


def _goes_on(field: Any, typed: str) -> bool:
    if field.get_text_iface() is None or Atspi.Text.get_n_selections(field) != 1:
        return False
    chosen, end = Atspi.Text.get_selection(field, 0), Atspi.Text.get_character_count(field)
    first = chosen.start_offset
    if not 0 < first < chosen.end_offset == end:
        return False
    last = typed[-min(first, len(typed)) :]
    return bool(last) and str(Atspi.Text.get_text(field, first - len(last), first)).casefold() == last.casefold()
