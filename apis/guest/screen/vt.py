"""What a terminal's screen shows, from the bytes that were written to it.

Invariant: pure and bounded. A screen never holds more than rows x columns characters, and no control among them.
Unknown sequences change nothing.

Covers what shells and common programs send to an xterm (ECMA-48): moving the cursor, erasing, inserting, deleting,
scrolling, and xterm's second screen. Colours and titles are skipped.
"""

from __future__ import annotations

import re
import unicodedata

ROWS_MAX, COLUMNS_MAX = 200, 500
_TAB = 8
_TOKENS = re.compile(
    r"\x1b\[(?P<args>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and other strings
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b(?P<escape>[0-~])"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
)


class Screen:
    """A screen of `rows` x `columns` characters, cut to the bounds of this module."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = min(max(rows, 1), ROWS_MAX)
        self.columns = min(max(columns, 2), COLUMNS_MAX)
        self._lines = [self._blank() for _ in range(self.rows)]
        self._first: list[list[str]] | None = None  # the first screen while the second shows
        self._row = self._column = 0
        self._saved = (0, 0)
        self._top, self._bottom = 0, self.rows - 1  # of what scrolls

    def _blank(self) -> list[str]:
        return [" "] * self.columns

    def lines(self) -> list[str]:
        """What shows, top to bottom, without blanks at line ends."""
        return ["".join(line).rstrip() for line in self._lines]

    def feed(self, text: str) -> None:
        """Take in what was written."""
        for token in _TOKENS.finditer(text):
            if (plain := token["text"]) is not None:
                self._write(plain)
            elif (final := token["final"]) is not None:
                self._command(final, token["args"])
            elif (control := token["control"]) is not None:
                self._control(control)
            elif (escape := token["escape"]) is not None:
                self._escape(escape)

    def _write(self, text: str) -> None:
        if not text.isascii():
            text = "".join(map(_cells, text))
        while text:
            if self._column >= self.columns:
                self._column = 0
                self._down()
            part = text[: self.columns - self._column]
            self._lines[self._row][self._column : self._column + len(part)] = part
            self._column += len(part)
            text = text[len(part) :]

    def _control(self, control: str) -> None:
        if control in "\n\x0b\x0c":
            self._down()
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, min(self._column, self.columns - 1) - 1)
        elif control == "\t":
            self._column = min(self.columns - 1, (self._column // _TAB + 1) * _TAB)

    def _escape(self, final: str) -> None:
        if final == "7":
            self._saved = (self._row, self._column)
        elif final == "8":
            self._row, self._column = self._saved
        elif final in "DE":
            self._down()
            self._column = 0 if final == "E" else self._column
        elif final == "M":
            if self._row == self._top:
                self._scroll(-1, self._top)
            else:
                self._row = max(0, self._row - 1)
        elif final == "c":
            self.__init__(self.rows, self.columns)  # type: ignore[misc]

    def _down(self) -> None:
        if self._row == self._bottom:
            self._scroll(1, self._top)
        else:
            self._row = min(self.rows - 1, self._row + 1)

    def _scroll(self, count: int, top: int) -> None:
        """Move the lines from `top` to the end of what scrolls up by `count`, or down by minus `count`."""
        for _ in range(min(abs(count), self.rows)):
            if count > 0:
                del self._lines[top]
                self._lines.insert(self._bottom, self._blank())
            else:
                del self._lines[self._bottom]
                self._lines.insert(top, self._blank())

    def _command(self, final: str, args: str) -> None:
        if args.startswith("?"):
            if final in "hl" and {"1049", "1047", "47"} & set(args[1:].split(";")):
                self._second(on=final == "h")
            return
        numbers = [int(part[:5]) if part.isdecimal() else 0 for part in args.split(";")]
        first = numbers[0]
        count = max(1, first)
        row, column = self._row, min(self._column, self.columns - 1)
        line = self._lines[row]
        if final in "ABCDEFGHd`f":
            self._move(final, count, max(1, numbers[1]) if len(numbers) > 1 else 1)
        elif final == "J":
            self._erase_lines(first)
        elif final == "K":
            start, end = ((column, self.columns), (0, column + 1), (0, self.columns))[first if first < 3 else 0]
            line[start:end] = " " * (end - start)
        elif final in "LM" and self._top <= row <= self._bottom:
            self._scroll(count if final == "M" else -count, row)
        elif final == "P":
            self._lines[row] = (line[:column] + line[column + count :] + self._blank())[: self.columns]
        elif final == "@":
            self._lines[row] = (line[:column] + self._blank()[:count] + line[column:])[: self.columns]
        elif final == "X":
            end = min(self.columns, column + count)
            line[column:end] = " " * (end - column)
        elif final in "ST":
            self._scroll(count if final == "S" else -count, self._top)
        elif final == "r":
            bottom = numbers[1] if len(numbers) > 1 and numbers[1] else self.rows
            if count < bottom <= self.rows:
                self._top, self._bottom = count - 1, bottom - 1
                self._row = self._column = 0
        elif final == "s":
            self._saved = (self._row, self._column)
        elif final == "u":
            self._row, self._column = self._saved

    def _move(self, final: str, count: int, second: int) -> None:
        row, column = self._row, min(self._column, self.columns - 1)
        if final in "AF":
            row -= count
        elif final in "BE":
            row += count
        elif final in "CD":
            column += count if final == "C" else -count
        elif final in "G`":
            column = count - 1
        elif final == "d":
            row = count - 1
        else:
            row, column = count - 1, second - 1
        if final in "EF":
            column = 0
        self._row = min(max(row, 0), self.rows - 1)
        self._column = min(max(column, 0), self.columns - 1)

    def _erase_lines(self, how: int) -> None:
        column = min(self._column, self.columns - 1)
        if how == 0:
            self._lines[self._row][column:] = self._blank()[column:]
            gone = range(self._row + 1, self.rows)
        elif how == 1:
            self._lines[self._row][: column + 1] = self._blank()[: column + 1]
            gone = range(self._row)
        else:
            gone = range(self.rows)
        for row in gone:
            self._lines[row] = self._blank()

    def _second(self, *, on: bool) -> None:
        if on and self._first is None:
            self._first, self._lines = self._lines, [self._blank() for _ in range(self.rows)]
            self._saved = (self._row, self._column)
        elif not on and self._first is not None:
            self._lines, self._first = self._first, None
            self._row, self._column = self._saved


def _cells(char: str) -> str:
    """A character in as many cells as it takes; what can't be shown alone takes none."""
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return ""
    return char


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
