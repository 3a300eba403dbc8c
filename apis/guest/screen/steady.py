"""What stays of LibreOffice's windows from one observation to the next: their frames, panels and tool bars.

Invariant: states and names are read again each time, and nothing is remembered of documents, lists and menus. Of an
object its role stays. The children of a panel are the same objects as long as they are as many and none of them is
gone. What the last observation did not meet is forgotten.

Most of the 300 nodes around a sheet hold other nodes and never change. Asking for all of it again takes a third of an
observation's time.
"""

from __future__ import annotations

from typing import Any

from guest.screen.bars import Bar, look
from guest.screen.boxes import Box

HOLDERS = {"filler", "panel", "root pane", "scroll pane", "split pane", "status bar", "viewport"}
OTHERS = ("document", "list", "menu", "table", "tree")  # how roles begin, below which nothing is remembered


class Gone(Exception):  # noqa: N818 - what became of it
    """A remembered object stands for nothing any more, or says so: Calc's input line always does."""


class Steady:
    """What the last observation met, and what this one does."""

    def __init__(self) -> None:
        self._roles: dict[Any, str] = {}
        self._inside: dict[Any, list[Any]] = {}
        self._bars: dict[Any, Bar] = {}
        self.turn()

    def turn(self) -> None:
        """A new observation begins."""
        self._old = self._roles, self._inside, self._bars
        self._roles, self._inside, self._bars = {}, {}, {}

    def role(self, node: Any) -> str:
        """A node's role. Raises GLib.Error."""
        role = self._old[0].get(node) or str(node.get_role_name())
        self._roles[node] = role
        return role

    def children(self, node: Any, count: int) -> list[Any]:
        """The children of a holder, None where there is no such child. Raises GLib.Error."""
        found = self._old[1].get(node)
        if found is None or len(found) != count:
            found = [node.get_child_at_index(at) for at in range(count)]
        self._inside[node] = found
        return found

    def anew(self, node: Any, at: int) -> Any:
        """The child at a place whose object is gone; None where there is none. Raises GLib.Error."""
        self._inside[node][at] = child = node.get_child_at_index(at)
        return child

    def bar(self, node: Any, count: int, box: Box) -> list[Any]:
        """The children of a tool bar that show; `box` is its place as LibreOffice tells it. Raises GLib.Error."""
        self._bars[node], children = look(node, count, box, self._old[2].get(node))
        return children
