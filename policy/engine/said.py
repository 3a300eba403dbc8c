"""The text of an answer while it grows: what of it can be given out, and where a text to stop at ends it. Pure.

Invariant: what was given out is never taken back. No text to stop at, nor a part of one, is given out.
"""

from __future__ import annotations

from collections.abc import Sequence

_UNFINISHED = "\ufffd"  # bytes of a character that has not come as a whole


class AnswerText:
    """One answer's text. `stopped` says that it has ended at one of `stops`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._given = 0
        self.stopped = False

    def grown(self, text: str, *, ended: bool) -> str:
        """The next piece of `text` that can be given out; all that is left once the answer has `ended`."""
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        self.stopped = bool(found)  # at the one that is whole first
        until = min(found)[1] if found else len(text) if ended else len(text) - self._unsure(text)
        piece = text[self._given : until]
        self._given += len(piece)
        return piece

    def _unsure(self, text: str) -> int:
        """How many characters at the end may become others, or the beginning of a text to stop at."""
        unsure = len(text) - len(text.rstrip(_UNFINISHED))
        for stop in self._stops:
            unsure = max(unsure, next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0))
        return unsure
