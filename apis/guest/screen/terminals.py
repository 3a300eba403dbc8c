"""What terminals show, from the bytes that were written to them: pyte's screen, fed within bounds.

Invariant: a screen never has more than rows x columns cells, and no control among them. A cell is a character and at
most `MARKS_MAX` combining marks. Unknown sequences change nothing. A terminal's element has at most `TEXT_MAX`
characters, and is there whether or not its text can be had.

pyte 0.8 keeps the cursor, modes, margins and tab stops. What it lacks is added here:

- Sequences come to it with as many numbers as it takes. What it would print (strings, other prefixes) is left out.
- Marks stay as they were written, since a file's name may be no other. pyte composes them with their letter.
- A character of two cells is never half in the last column, and one that was half overwritten is a blank.
- xterm's second screen, scrolling by a number of lines, repeating, back tabs, and one saved cursor.
"""

from __future__ import annotations

import codecs
import copy
import functools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import pyte
from guest.screen import terminal
from guest.screen.terminal import SILENT_CLASSES
from pyte import charsets, modes
from pyte.screens import Char
from wcwidth import wcwidth

ROWS_MAX, COLUMNS_MAX = 200, 500
MARKS_MAX = 8
_NUMBER_MAX = 9999
_JOINERS = "\u200c\u200d"
_SECOND = {47, 1047, 1049}  # private modes of the second screen
_LEFT_OUT = {3, 5}  # private modes: 132 columns, which xterm ignores, and all in reverse, which shows no other text
_TOKENS = re.compile(
    r"\x1b\[(?P<args>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles and other strings
    r"|\x1b(?P<charset>[()])(?P<code>[0-~])|\x1b[ -/]+[0-~]"
    r"|\x1b(?P<escape>[0-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f-\x9f])"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
)
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]{0,4096}\x1b?|[ -/]*)\Z")  # its end is to come
_RUNS = re.compile(r"[ -~]+|.", re.DOTALL)
_CONTROLS = pyte.Stream.basic
_ESCAPES = pyte.Stream.escape | {"E": "next_line"}
_COMMANDS = {key: name for key, name in pyte.Stream.csi.items() if key not in "'cmn"} | {
    "`": "cursor_to_column", "S": "scroll_up", "T": "scroll_down", "b": "repeat", "Z": "back_tab",
    "s": "save_cursor", "u": "restore_cursor",
}  # fmt: skip
_NUMBERS = {"s": 0, "u": 0, "H": 2, "f": 2, "r": 2, "h": 16, "l": 16}  # how many a command takes; others take one


@functools.lru_cache(maxsize=1024)
def _cell(data: str) -> Any:
    return Char(data)


@functools.lru_cache(maxsize=4096)
def _width(char: str) -> int:
    """How many cells a character takes; 0 for what belongs to the one before it, -1 for what shows nothing."""
    width = int(wcwidth(char))
    # Of the letters of no width, Lo, are parts of a Korean syllable, as a Mac writes them; Sk is a colour of skin.
    if width == 0 and char not in _JOINERS and unicodedata.category(char) not in ("Mn", "Mc", "Me", "Lo", "Sk"):
        return -1
    return width


class _Lines(pyte.Screen):
    """pyte's screen with what it lacks."""

    def reset(self) -> None:
        self._first: Any = None  # the first screen's lines and saved cursor while the second shows
        self.drawn = ""  # the character written just before, if nothing came since
        self.savepoints.clear()
        super().reset()
        self.g1_charset = charsets.LAT1_MAP

    def draw(self, data: str) -> None:
        data = data.translate(self.g1_charset if self.charset else self.g0_charset)
        for run in _RUNS.findall(data):
            if run.isascii() and modes.IRM not in self.mode:
                self._put_plain(run)
            else:
                for char in run:
                    self._put(char, _width(char))

    def _put_plain(self, run: str) -> None:
        while run:
            self._make_room(1)
            part = run[: self.columns - self.cursor.x]
            self.buffer[self.cursor.y].update(enumerate(map(_cell, part), self.cursor.x))
            self.cursor.x += len(part)
            self.drawn = part[-1]
            run = run[len(part) :]

    def _put(self, char: str, width: int) -> None:
        if width > 0:
            self._make_room(width)
        line, x = self.buffer[self.cursor.y], self.cursor.x
        if width == 0 and x:
            at = x - 2 if x > 1 and not line[x - 1].data else x - 1
            line[at] = _cell((line[at].data + char)[: 1 + MARKS_MAX])
        if width <= 0:
            return
        if modes.IRM in self.mode:
            self.insert_characters(width)
        line[x] = _cell(char)
        if width == 2:
            line[x + 1] = _cell("")
        self.cursor.x += width
        self.drawn = char

    def _make_room(self, width: int) -> None:
        """Go on in the next line, or at the end of this one, where a character of `width` cells does not fit."""
        if self.cursor.x + width <= self.columns:
            return
        if modes.DECAWM in self.mode:
            self.carriage_return()
            self.index()
        else:
            self.cursor.x = self.columns - width

    def text(self, y: int) -> str:
        """A line as it shows, without blanks at its end."""
        line = self.buffer.get(y, {})
        cells = [line[x].data if x in line else " " for x in range(min(self.columns, max(line, default=-1) + 1))]
        wide = [not data.isascii() and _width(data[0]) == 2 for data in cells]
        for x, data in enumerate(cells):
            alone = wide[x] and cells[x + 1 : x + 2] != [""]
            if alone or not (data or (x and wide[x - 1])):
                cells[x] = " "
        return "".join(cells).rstrip()

    def set_mode(self, *wanted: int, private: bool = False) -> None:
        if private and _SECOND.intersection(wanted):
            self._show_second(on=True)
        super().set_mode(*(mode for mode in wanted if not (private and mode in _LEFT_OUT)), private=private)

    def reset_mode(self, *wanted: int, private: bool = False) -> None:
        if private and _SECOND.intersection(wanted):
            self._show_second(on=False)
        super().reset_mode(*(mode for mode in wanted if not (private and mode in _LEFT_OUT)), private=private)

    def _show_second(self, *, on: bool) -> None:
        if on and self._first is None:
            self.save_cursor()
            self._first = dict(self.buffer), self.savepoints
            self.savepoints = []  # each screen has a saved cursor of its own
            self.buffer.clear()
        elif not on and self._first is not None:
            lines, self.savepoints = self._first
            self.buffer.clear()
            self.buffer.update(lines)
            self._first = None
            self.restore_cursor()

    def save_cursor(self) -> None:
        self.savepoints.clear()
        super().save_cursor()

    def restore_cursor(self) -> None:
        kept = [point._replace(cursor=copy.copy(point.cursor)) for point in self.savepoints]
        super().restore_cursor()
        self.savepoints = kept

    def set_margins(self, top: int | None = None, bottom: int | None = None) -> None:
        super().set_margins(top or 1, bottom or self.lines)

    def cursor_up(self, count: int | None = None) -> None:
        top = self.margins.top if self.margins and self.cursor.y >= self.margins.top else 0
        self.cursor.y = max(top, self.cursor.y - (count or 1))

    def cursor_down(self, count: int | None = None) -> None:
        inside = self.margins and self.cursor.y <= self.margins.bottom
        self.cursor.y = min(self.margins.bottom if inside else self.lines - 1, self.cursor.y + (count or 1))

    def cursor_position(self, line: int | None = None, column: int | None = None) -> None:
        if self.margins and modes.DECOM in self.mode:
            line = min(line or 1, self.margins.bottom - self.margins.top + 1)
        super().cursor_position(line, column)

    def cursor_to_line(self, line: int | None = None) -> None:
        self.cursor_position(line, self.cursor.x + 1)

    def delete_lines(self, count: int | None = None) -> None:
        for y in range(self.lines):
            self.buffer[y]  # pyte does not move lines that were never written to
        super().delete_lines(count)

    def erase_in_line(self, how: int = 0, **_: Any) -> None:
        if how <= 2:
            super().erase_in_line(how)

    def erase_in_display(self, how: int = 0, **_: Any) -> None:
        """Erase lines; 3 are those that have scrolled away, of which there are none here."""
        for y in {0: range(self.cursor.y + 1, self.lines), 1: range(self.cursor.y), 2: range(self.lines)}.get(how, ()):
            self.buffer.pop(y, None)
        if how < 2:
            self.erase_in_line(how)

    def scroll_up(self, count: int = 1) -> None:
        """Move what scrolls up by `count` lines."""
        self._from_top(self.delete_lines, count)

    def scroll_down(self, count: int = 1) -> None:
        """Move what scrolls down by `count` lines."""
        self._from_top(self.insert_lines, count)

    def _from_top(self, move: Callable[[int], None], count: int) -> None:
        before = self.cursor
        self.cursor = copy.copy(before)
        self.cursor.y = self.margins.top if self.margins else 0
        move(count)
        self.cursor = before

    def repeat(self, count: int = 1) -> None:
        """Write again the character that was written just before."""
        self.draw(self.drawn * min(count or 1, self.columns))

    def back_tab(self, count: int = 1) -> None:
        """Move back to the tab stop before."""
        stops = sorted({0} | {stop for stop in self.tabstops if stop < self.cursor.x})
        self.cursor.x = stops[-min(count or 1, len(stops))]

    def next_line(self) -> None:
        """Begin the next line."""
        self.carriage_return()
        self.index()


class Screen:
    """A screen of `rows` x `columns` characters, cut to the bounds of this module."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = min(max(rows, 1), ROWS_MAX)
        self.columns = min(max(columns, 2), COLUMNS_MAX)
        self._lines = _Lines(self.columns, self.rows)
        self._begun = ""

    def lines(self) -> list[str]:
        """What shows, top to bottom, without blanks at line ends."""
        return [self._lines.text(y) for y in range(self.rows)]

    def feed(self, text: str) -> None:
        """Take in what was written; a sequence whose end has not come yet waits for it."""
        text = self._begun + text
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        for token in _TOKENS.finditer(text, 0, len(text) - len(self._begun)):
            self._take(token)
            if token["text"] is None:
                self._lines.drawn = ""

    def _take(self, token: re.Match[str]) -> None:
        lines = self._lines
        if (plain := token["text"]) is not None:
            lines.draw(plain)
        elif (final := token["final"]) is not None:
            if not token["between"]:
                self._command(final, token["args"])
        elif token["charset"]:
            lines.define_charset(token["code"], token["charset"])
        elif name := _CONTROLS.get(token["control"]) or _ESCAPES.get(token["escape"]):
            getattr(lines, name)()

    def _command(self, final: str, args: str) -> None:
        private = args.startswith("?")
        numbers = args.removeprefix("?")
        if final not in _COMMANDS or (private and final not in "hl") or not set(numbers) <= set("0123456789;"):
            return
        values = [min(int(part[:5] or 0), _NUMBER_MAX) for part in numbers.split(";", 16)[:16]]
        command = getattr(self._lines, _COMMANDS[final])
        if final in "hl":
            command(*values, private=private)
        else:
            self._lines.ensure_hbounds()  # a line that is full wraps at the next character only
            command(*values[: _NUMBERS.get(final, 1)])


def last_lines(lines: list[str], limit: int) -> str:
    """The last lines that together hold at most `limit` characters, blank ones below the last text left out."""
    kept: list[str] = []
    left = limit
    for line in reversed(lines):
        if not line and not kept:
            continue
        if len(line) + bool(kept) > left:
            break
        kept.append(line)
        left -= len(line) + (len(kept) > 1)
    if not kept:
        longest = next((line for line in reversed(lines) if line), "")
        return longest[-limit:]
    return "\n".join(reversed(kept)).strip("\n")


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
