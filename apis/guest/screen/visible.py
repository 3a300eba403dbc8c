"""Which children of a node show, where there are too many to ask each.

Invariant: calls are bounded. Of few children all are given. Of many children, at most `SHOWN_MAX` are given, in their
order: the children at points of the visible part, and their visible neighbours.

GTK 2's icon views tell the places of their icons as if nothing was scrolled. They look for a point there, too. The
scroll bars beside such a view say by how much it is scrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gi
from guest.screen.boxes import Box, common, holds

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi  # noqa: E402 - the version must be chosen first

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
    """How far the scroll bars beside an icon view are."""
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
    found = set(_headers(node)) | hits
    columns = _columns(node)
    for hit in sorted(hits):
        for step in (-1, 1) if columns < 2 else (-columns, columns, -1, 1):
            misses, at = 0, hit + step
            while 0 <= at < count and misses < _MISSES and len(found) < SHOWN_MAX and not late():
                if at in hits:
                    break
                if at not in found:
                    shows = _shows(node, at, view, shift)
                    misses = 0 if shows else misses + 1
                    found |= {at} if shows else set()
                at += step
    return sorted(found)[:SHOWN_MAX]


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
    found: set[int] = set()
    known: list[Box] = []
    wide, high = max(1, view[2] - 2 * _EDGE), max(1, view[3] - 2 * _EDGE)
    for row in range(_ROWS):
        y = view[1] + _EDGE + row * high // (_ROWS - 1)
        for column in range(_COLUMNS):
            x = view[0] + _EDGE + (2 * column + 1) * wide // (2 * _COLUMNS)
            if late():
                return found
            if any(holds(box, x, y) for box in known):
                continue
            child = _child_at(node, x + shift[0], y + shift[1])
            if child is None:
                continue
            at = child.get_index_in_parent()
            box = box_of(child)
            if at >= 0 and box is not None:
                found.add(at)
                known.append((box[0] - shift[0], box[1] - shift[1], box[2], box[3]))
    return found


def _child_at(node: Any, x: int, y: int) -> Any:
    """The child of `node` that a point lies in, however deep the application looks; None where there is none."""
    found = Atspi.Component.get_accessible_at_point(node, x, y, Atspi.CoordType.SCREEN)
    for _ in range(_CLIMB):
        if found is None or found == node:
            return None
        parent = found.get_parent()
        if parent == node:
            return found
        found = parent
    return None
