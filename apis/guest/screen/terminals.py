"""The text of the terminals on the screen, as elements.

Invariant: a terminal's element has at most `TEXT_MAX` characters, and no control character but line ends. It is there
whether or not its text can be had.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any

from guest.screen import terminal
from guest.screen.programs import SILENT_CLASSES
from guest.screen.vt import Screen, last_lines

TEXT_MAX, WHOLE_MAX = 500, 64 << 10


class _Known:
    """A terminal's screen after the first `count` bytes that were written to it."""

    def __init__(self, rows: int, columns: int, count: int) -> None:
        self.rows, self.columns, self.count = rows, columns, count
        self.text = ""
        self._screen = Screen(rows, columns)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, count: int, data: bytes) -> None:
        """Take in what was written since, up to byte `count`."""
        self._screen.feed(self._decoder.decode(data))
        self.count = count
        self.text = last_lines(self._screen.lines(), TEXT_MAX)

    def whole(self) -> str:
        """All lines that it shows."""
        return last_lines(self._screen.lines(), WHOLE_MAX)


class Terminals:
    """Reads what terminals were sent, each byte once."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}  # by window

    def text(self, window: int) -> str:
        """The last lines on the screen of a terminal; "" where they can't be known."""
        seen = terminal.read(terminal.path_of(window))
        if seen is None:
            return ""
        count, rows, columns, data = seen
        known = self._known.get(window)
        if known is None or (known.rows, known.columns) != (rows, columns) or not 0 <= count - known.count <= len(data):
            known = self._known[window] = _Known(rows, columns, count - len(data))
        if count > known.count:
            known.take(count, data[len(data) - count + known.count :])
        return known.text

    def whole(self, window: int) -> str:
        """All that a terminal shows; "" where it can't be known."""
        self.text(window)
        known = self._known.get(window)
        return known.whole() if known else ""

    def elements(self, windows: list[dict[str, Any]], hidden: Iterable[int]) -> list[list[Any]]:
        """One element for each terminal that is not hidden; `hidden` holds indexes into `windows`."""
        self._known = {row["id"]: self._known[row["id"]] for row in windows if row["id"] in self._known}
        return [
            ["terminal", "", self.text(row["id"]), row["x"], row["y"], row["w"], row["h"],
             ["sen", "edt", *(["foc"] if row["active"] else [])], at]
            for at, row in enumerate(windows)
            if row["class"].lower() in SILENT_CLASSES and at not in hidden
        ]  # fmt: skip
