"""The text of the terminals on the screen, as elements.

Invariant: a terminal's element has at most `TEXT_MAX` characters, and no control character but line ends. It is there
whether or not its text can be had.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from guest.screen import terminal
from guest.screen.programs import SILENT_CLASSES
from guest.screen.vt import Screen, last_lines

TEXT_MAX = 500


class Terminals:
    """Reads what terminals were sent, once for each change."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, int, int], str]] = {}  # by window: what was read, its text

    def text(self, window: int) -> str:
        """The last lines on the screen of a terminal; "" where they can't be known."""
        seen = terminal.read(terminal.path_of(window))
        if seen is None:
            return ""
        count, rows, columns, data = seen
        mark = (count, rows, columns)
        known = self._known.get(window)
        if known is None or known[0] != mark:
            screen = Screen(rows, columns)
            screen.feed(data.decode("utf-8", "replace"))
            known = self._known[window] = (mark, last_lines(screen.lines(), TEXT_MAX))
        return known[1]

    def elements(self, windows: list[dict[str, Any]], hidden: Iterable[int]) -> list[list[Any]]:
        """One element for each terminal that is not hidden; `hidden` holds indexes into `windows`."""
        self._known = {row["id"]: self._known[row["id"]] for row in windows if row["id"] in self._known}
        return [
            ["terminal", "", self.text(row["id"]), row["x"], row["y"], row["w"], row["h"],
             ["sen", "edt", *(["foc"] if row["active"] else [])], at]
            for at, row in enumerate(windows)
            if row["class"].lower() in SILENT_CLASSES and at not in hidden
        ]  # fmt: skip
