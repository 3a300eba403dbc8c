"""Text of the guest on its way into a prompt: it can neither forge a line of the prompt nor steer a terminal."""

from __future__ import annotations

import msgspec

ESCAPED_MAX = 20_000  # longer than any label, however it is escaped


class Turn(msgspec.Struct, frozen=True):
    """An earlier step: the answer, the action's line (None when it was refused) and what came of it."""

    answer: str
    line: str | None
    result: str


def escaped(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters; what can't be printed becomes \\n, \\x1b or \\u202e.

    Not printable are the Unicode categories Other and Separator but for the space.
    """
    shown = text[: limit + 1]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else _escape(c) for c in shown)
    return shown if len(shown) <= limit and len(text) <= limit else shown[: limit - 3] + "..."


def whole(text: str) -> str:
    """`text` on one line as `escaped` has it, never cut: a task, which comes from its file and not from the guest."""
    return escaped(text, 10 * len(text))  # the longest escape, \U0001f600, has ten characters


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
