"""How the time of one text is shared out between rests at lines, pauses at strokes, and waiting for an application.

Invariant: pure. Rests and pauses leave the waits that are still to come as long as the longest one took. So a busy
machine costs rests first, then pauses, and the end of the text last. A long text has several calls, each with its own
deadline.
"""

from __future__ import annotations

CAREFUL_S = 11.0  # of waiting at lines and cells in one call; what is longer goes on at the application's pace
TYPE_S = 14.0  # of pauses in one call, the careful ones included
ANSWER_S = 16.0  # until the answer is due: the host waits 20 s for a call
READ_S = 8.0  # for an application to read what it was sent; it may be held up
BOUND_S = 0.5  # for an application to read a new layout; a wait is taken for so long until the first one is over


class Spending:
    """The time of one text; all arguments are in seconds, `now` and `began` by a monotonic clock."""

    def __init__(self, began: float, waits: int, calls: int = 1) -> None:
        """`waits` is how often the application has to be waited for, `calls` how many the text may take."""
        self._began, self._more = began, calls - 1  # of the call that runs, and how many may follow it
        self._waits, self._longest_s = waits, BOUND_S

    def again(self, now: float) -> None:
        """The next call begins."""
        self._began, self._more = now, max(0, self._more - 1)

    def over(self, now: float) -> bool:
        """Whether the call has to end, wherever the text stands."""
        return now >= self._began + (TYPE_S if self._more else ANSWER_S)

    def waited(self, seconds: float) -> None:
        """A wait is over."""
        self._waits, self._longest_s = max(0, self._waits - 1), max(self._longest_s, seconds)

    def left_s(self, now: float) -> float:
        """What rests and pauses may still take, in this call and the following."""
        return max(0.0, self._began + TYPE_S * (1 + self._more) - now - self._waits * self._longest_s)

    def careful(self, now: float) -> bool:
        """Whether a line may still be rested at."""
        return self.left_s(now) > (TYPE_S - CAREFUL_S) * (1 + self._more)

    def wait_s(self, now: float) -> float:
        """How long the application may be waited for."""
        return min(READ_S, max(BOUND_S, self._began + ANSWER_S - now))
