"""What commands print.

Invariant: text from a run (guest text included) reaches a terminal with its control characters escaped, and `--json`
prints exactly one JSON document on standard output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO


def clean(text: str, *, lines: bool = False) -> str:
    """`text` with control characters, escapes and bidirectional overrides written as backslash escapes."""
    return "".join(c if c.isprintable() or (lines and c == "\n") else c.encode("unicode_escape").decode() for c in text)


def line(text: str = "", *, to: TextIO | None = None) -> None:
    """One or more lines of text."""
    stream = to or sys.stdout
    stream.write(clean(text, lines=True) + "\n")
    stream.flush()


def news(text: str) -> None:
    """Lines on how work goes. A reader who has left (`| head`) ends the telling and not the work."""
    try:
        line(text)
    except BrokenPipeError:
        unheard()


def unheard() -> None:
    """Nobody reads standard output any more, and nothing may be flushed into the closed pipe."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def quoted(text: str) -> None:
    """Lines of somebody else's text, marked so that none of them can pass for one of this program's."""
    for part in text.split("\n"):
        line(f"| {part}")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns; the last column is not padded."""
    cells = [[clean(str(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def document(value: Any) -> None:
    """`value` as one JSON document (msgspec structs included)."""
    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=str)
    text = json.dumps(plain, ensure_ascii=False, indent=2)
    sys.stdout.write("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n")
    sys.stdout.flush()


def duration(seconds: float) -> str:
    """`93` as `1m33s`."""
    whole = max(0, round(seconds))
    minutes, seconds_left = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds_left:02d}s" if minutes else f"{seconds_left}s"
