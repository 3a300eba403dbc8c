"""LibreOffice's windows: the cells of a sheet, and what of frames, panels and tool bars need not be asked again.

A table of LibreOffice has 2^34 children, so at most `ROWS_MAX` x `COLUMNS_MAX` cells are asked for by row and column.
Each costs two calls over the bus, so the application's functions give all texts at once where they answer.

States and names are read again each time, and nothing is remembered of documents, lists and menus, or while a menu is
open. An object's role is remembered as long as the object. A panel's children are, as long as they are as many and none
of them is gone. A button's box is, as long as the box of its bar, the names in the bar, which of its children show, and
the place of the last of these are. What the last observation did not meet is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gi
from guest.addresses import Place, address, chosen, filled, place_of, range_of
from guest.screen.nodes import Box, box_of

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib  # noqa: E402 - the version must be chosen first

ROWS_MAX, COLUMNS_MAX = 64, 32
_EDGE = 3  # pixels inside the corner of a table at which its outermost cell is asked for

Known = Callable[[Place, Place], dict[Place, str] | None]


class Sheet:
    """One table of LibreOffice Calc. Raises GLib.Error from everywhere when the application does not answer."""

    def __init__(self, table: Any) -> None:
        self._table = table
        box = table.get_extents(Atspi.CoordType.SCREEN)
        self._box: Box = (box.x, box.y, box.width, box.height)

    def _cell(self, row: int, column: int) -> Any:
        cell = Atspi.Table.get_accessible_at(self._table, row, column)
        if cell is None:  # of a table that is just being closed
            raise GLib.Error(f"no cell in row {row}, column {column}")
        return cell

    def _at(self, x: int, y: int, otherwise: Place) -> Place:
        cell = Atspi.Component.get_accessible_at_point(self._table, x, y, Atspi.CoordType.SCREEN)
        return (place_of(cell.get_name() or "") if cell is not None else None) or otherwise

    def _corners(self) -> tuple[Place, Place]:
        """The first and the last cell that shows, within the bounds of this module."""
        x, y, w, h = self._box
        first = self._at(x + _EDGE, y + _EDGE, (0, 0))
        last = self._at(x + w - _EDGE, y + h - _EDGE, (first[0] + ROWS_MAX, first[1] + COLUMNS_MAX))
        return first, (min(last[0], first[0] + ROWS_MAX - 1), min(last[1], first[1] + COLUMNS_MAX - 1))

    def _text(self, row: int, column: int) -> str:
        return str(Atspi.Text.get_text(self._cell(row, column), 0, -1))  # the application bounds a cell's length

    def _texts(self, first: Place, last: Place, known: Known, until: float) -> dict[Place, str]:
        """What the cells show: as the application's own functions tell it, where they speak of this very table."""
        texts = known(first, last)
        if texts is not None and all(self._text(*place) == texts[place] for place in list(texts)[:1]):
            return texts
        return filled(first, last, self._text, lambda: time.monotonic() > until)

    def cells(self, now: str, known: Known, until: float) -> Iterator[tuple[str, str, Box, list[str]]]:
        """Name, shown text, box and states of each cell that is said.

        `now` is the Name Box's text: the current cell or the selected range; `known` tells what the filled cells of a
        range show, or None where it can't; `until` is a moment of the monotonic clock.
        """
        first, last = self._corners()
        texts = self._texts(first, last, known, until)
        current, selected = place_of(now.partition(":")[0]), range_of(now)
        rows, columns = range(first[0], last[0] + 1), range(first[1], last[1] + 1)
        places = chosen(texts, list(rows), list(columns), current)
        # Heights by the last column and widths by the last row: titles that span several cells stand at the start.
        heights = {row: self._extents(row, last[1]) for row in {row for row, _ in places}}
        widths = {column: self._extents(last[0], column) for column in {column for _, column in places}}
        for row, column in places:
            y, h, x, w = heights[row].y, heights[row].height, widths[column].x, widths[column].width
            states = ["sen", "edt"]
            if (row, column) == current:
                states.append("foc")
            if selected and selected[0][0] <= row <= selected[1][0] and selected[0][1] <= column <= selected[1][1]:
                states.append("sel")
            if w > 0 and h > 0:  # else its row or column is hidden
                yield address(row, column), texts.get((row, column), ""), (x, y, w, h), states

    def _extents(self, row: int, column: int) -> Any:
        return self._cell(row, column).get_extents(Atspi.CoordType.SCREEN)


_SHOWING, _DEFUNCT = Atspi.StateType.SHOWING, Atspi.StateType.DEFUNCT
_SILENT = "separator"
_LEAVES = {"push button", "toggle button", _SILENT}


class Place(NamedTuple):
    """A box as the library tells it."""

    x: int
    y: int
    width: int
    height: int


class Button:
    """A child of a bar that asks its application only for what is not known; for all else it is the node itself."""

    def __init__(self, node: Any, states: Any, name: str | None, known: KnownButton) -> None:
        self._node = node
        self._states = states
        self._name = name
        self._known = known

    def get_state_set(self) -> Any:
        """The states, as they were read for this observation."""
        return self._states

    def get_name(self) -> str:
        """The name, as it was read for this observation."""
        return str(self._node.get_name()) if self._name is None else self._name

    def get_role_name(self) -> str:
        return self._known.role

    def get_child_count(self) -> int:
        return 0

    def get_extents(self, coordinates: Any) -> Any:
        """Its place on the screen, the only one that is asked for."""
        if self._known.box is None:
            box = self._node.get_extents(coordinates)
            self._known.box = (box.x, box.y, box.width, box.height)
        return Place(*self._known.box)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


class KnownButton:
    """What is remembered of a child."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.box: Box | None = None


class Bar(NamedTuple):
    """One tool bar as the last observation saw it."""

    box: Box  # as its application tells it
    nodes: list[Any]
    sign: tuple[str | None, ...]  # names of the children, None for those that do not show
    last: Box | None  # of the last child that shows
    known: dict[Any, KnownButton]  # of the children without anything below them


def look(bar: Any, count: int, box: Box, before: Bar | None) -> tuple[Bar, list[Any]]:
    """The bar as it is now, and its children that show: buttons that know themselves, or nodes. Raises GLib.Error."""
    nodes = before.nodes if before is not None and len(before.nodes) == count else _children(bar, count)
    states = [node.get_state_set() for node in nodes]
    if before is not None and nodes is before.nodes and any(state.contains(_DEFUNCT) for state in states):
        nodes = _children(bar, count)
        states = [node.get_state_set() for node in nodes]
    known = {node: before.known[node] for node in nodes if node in before.known} if before is not None else {}
    names = [
        _name(node, known.get(node)) if state.contains(_SHOWING) else None
        for node, state in zip(nodes, states, strict=True)
    ]
    shown = [node for node, name in zip(nodes, names, strict=True) if name is not None]
    now = Bar(box, nodes, tuple(names), box_of(shown[-1]) if shown else None, {})
    kept = before is not None and (before.box, before.sign, before.last) == (box, now.sign, now.last)
    children: list[Any] = []
    for node, state, name in zip(nodes, states, names, strict=True):
        old = known.get(node)
        if old is not None:
            now.known[node] = old if kept else KnownButton(old.role)
        if name is None:
            continue
        if old is None and (role := node.get_role_name()) in _LEAVES and node.get_child_count() == 0:
            now.known[node] = KnownButton(role)
        children.append(Button(node, state, name, now.known[node]) if node in now.known else node)
    return now, children


def _children(bar: Any, count: int) -> list[Any]:
    children = (bar.get_child_at_index(at) for at in range(count))
    return [node for node in children if node is not None]


def _name(node: Any, known: KnownButton | None) -> str:
    return "" if known is not None and known.role == _SILENT else str(node.get_name() or "")


HOLDERS = {"filler", "panel", "root pane", "scroll pane", "split pane", "status bar", "viewport"}
OTHERS = ("document", "list", "menu", "table", "tree")  # how roles begin, below which nothing is remembered


class Gone(Exception):  # noqa: N818 - what became of it
    """A remembered object means nothing any more, or says so: Calc's input line always does."""


class Steady:
    """What the last observation met, and what this one does."""

    def __init__(self) -> None:
        self._roles: dict[Any, str] = {}
        self._inside: dict[Any, list[Any]] = {}
        self._bars: dict[Any, Bar] = {}
        self.turn()

    def turn(self) -> None:
        self._old = self._roles, self._inside, self._bars
        self._roles, self._inside, self._bars = {}, {}, {}

    def role(self, node: Any) -> str:
        """A node's role. Raises GLib.Error."""
        role = self._old[0].get(node) or str(node.get_role_name())
        self._roles[node] = role
        return role

    def children(self, node: Any, count: int) -> list[Any]:
        """The children of a holder, None where there is no such child. Raises GLib.Error."""
        children = self._old[1].get(node)
        if children is None or len(children) != count:
            children = [node.get_child_at_index(at) for at in range(count)]
        self._inside[node] = children
        return children

    def replaced(self, node: Any, at: int) -> Any:
        """The child at a place whose object is gone; None where there is none. Raises GLib.Error."""
        self._inside[node][at] = child = node.get_child_at_index(at)
        return child

    def bar(self, node: Any, count: int, box: Box) -> list[Any]:
        """The children of a tool bar that show; `box` is its place as LibreOffice tells it. Raises GLib.Error."""
        self._bars[node], children = look(node, count, box, self._old[2].get(node))
        return children
