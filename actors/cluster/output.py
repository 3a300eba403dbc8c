"""What commands print.

Invariant: text from a run, guest text included, reaches a terminal with its control characters escaped. `--json` prints
exactly one JSON document on standard output.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

EVERY_S = 5.0  # between two lines on how work goes
UNBOUNDED = sys.maxsize  # characters of a line that goes to no terminal
N = TypeVar("N", int, float)


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with control characters, escapes and bidirectional overrides written as backslash escapes."""
    return "".join(c if c.isprintable() or (lines and c == "\n") else c.encode("unicode_escape").decode() for c in text)


class Unwritten(Exception):  # noqa: N818 - ends a command in one line
    """Standard output takes nothing: it is full, or its end is gone in another way than a reader's leaving."""


def write(text: str, stream: TextIO, *, flush: bool = True) -> None:
    """`text` as it is. Raises BrokenPipeError, Unwritten."""
    try:
        stream.write(text)
        if flush:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard error" if stream is sys.stderr else "standard output"
        raise Unwritten(f"{name} can't be written: {error.strerror}") from error


def open_streams() -> None:
    """Open the standard streams that are closed: else the next file to be opened would get their descriptor."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - as long as the process


def line(text: str = "", *, to: TextIO | None = None) -> None:
    """One or more lines of text."""
    write(clean(text, lines=True) + "\n", to or sys.stdout)


def prose(text: str) -> None:
    """Lines of sentences. In a terminal each fills its width, and goes on below the text behind its label."""
    for part in text.split("\n"):
        begins = re.match(r"(?:\S+ {2,})?\s*", part)
        assert begins is not None, "it matches nothing, too"
        hang = " " * min(begins.end(), columns() // 2)
        filled = textwrap.wrap(part, columns(), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
        line("\n".join(filled))


def news(text: str) -> None:
    """Lines on how work goes. A reader who has left (`| head`) or a full disk ends the telling and not the work."""
    try:
        line(text)
    except (BrokenPipeError, Unwritten):
        drop_output()


class Progress:
    """Lines on how work goes, at most one in `EVERY_S` seconds; standard output stays a document's own."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._to = sys.stderr if as_json else sys.stdout
        self._begun = self._shown = time.monotonic()

    def line(self, text: str) -> None:
        """`text` behind the time since the beginning, where a line is due."""
        if (now := time.monotonic()) - self._shown >= EVERY_S:
            self._shown = now
            line(f"{duration(now - self._begun):>7}  {text}", to=self._to)


def drop_output() -> None:
    """Drop what is buffered: the reader of standard output has gone, so a later flush would fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def quoted(text: str) -> None:
    """Lines of somebody else's text, marked so that none of them can pass for one of this program's."""
    for part in text.split("\n"):
        line(f"| {part}")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns, below `head` where there is one. In a terminal a long cell goes on below itself."""
    cells = [[clean(str(cell)) for cell in row] for row in ((head, *rows) if head else rows)]
    widths = _fitted([max(1, *map(len, column)) for column in zip(*cells, strict=True)], columns())
    for row in cells:
        parts = [
            [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)
            for cell, width in zip(row, widths, strict=True)
        ]
        for below in itertools.zip_longest(*parts, fillvalue=""):
            line("  ".join(part.ljust(width) for part, width in zip(below, widths, strict=True)).rstrip())


def columns() -> int:
    """The terminal's width in characters; very many where standard output is none."""
    return shutil.get_terminal_size((UNBOUNDED, 0)).columns if sys.stdout.isatty() else UNBOUNDED


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns such that a line has `room`: the widest give way first."""
    room -= 2 * (len(widths) - 1)
    cap = max(widths, default=0)
    while cap > 1 and sum(min(width, cap) for width in widths) > room:
        cap = min(cap - 1, max(1, room))
    return [min(width, cap) for width in widths]


def document(value: Any) -> None:
    """`value` as one JSON document (msgspec structs included)."""
    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=str)
    text = json.dumps(plain, ensure_ascii=False, indent=2)
    write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n", sys.stdout)


def duration(seconds: float) -> str:
    """`93` as `1m33s`."""
    whole = max(0, round(seconds))
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds_left:02d}s" if minutes else f"{seconds_left}s"


# Plain words for the codes of the ledger; JSON and logs keep the codes.
_PLAIN = {
    # phases
    "demo": "demonstrations", "bc": "cloning", "rl": "RL",
    # why an episode ended as it did
    "not_verified": "the check says no", "out_of_steps": "no turn left",
    "agent_broke_desktop": "broke its desktop", "agent_gave_up": "gave up",
    # how a group ended
    "trained": "trained on", "stale": "too old", "zero_variance": "rewards all equal", "lost": "lost to faults",
    "phase_closed": "its phase had ended", "orphaned": "undone by a resume",
    # why a phase began
    "begin": "start", "counted": "steps done", "plateau": "success levelled off", "finished": "all done",
    "demos_complete": "demonstrations done", "demos_exhausted": "no more demonstrations", "bc_complete": "cloning done",
    "pulse_complete": "pulse done", "no_signal": "all rewards equal", "no_success": "no success",
}  # fmt: skip


def plain(code: str) -> str:
    """`code` in plain words; of one that has none here, its own words."""
    return _PLAIN.get(code, code.replace("_", " "))


def plainly(counts: Mapping[str, N]) -> dict[str, N]:
    """The same counts under plain words."""
    return {plain(code): count for code, count in counts.items()}
