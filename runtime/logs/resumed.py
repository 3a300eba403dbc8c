"""The log lines of a run that was stopped and resumed, on one clock. Pure.

Invariant: no second in which the run did not go on lies between two lines, so no report counts it; within one life all
times keep their distances, but for the silence before a ledger that was restarted, some seconds at most. The clock of a
later life may be another machine's start's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Line = dict[str, Any]
BEGINS, LEDGER = "ledger_opened", "replay"  # a life's first line, but for the ledger's own on what it gives back
_MOMENTS = ("t", "t0", "t1")  # monotonic seconds


def in_a_row(lines: Iterable[Line]) -> Iterator[Line]:
    """`lines`, in the order of their wall times, with each life's moments beginning where the one before left off."""
    shift, last = 0.0, None
    for line in lines:
        if line["event"] == BEGINS and last is not None:
            shift = last - line["t"]
        moved = line | {name: line[name] + shift for name in _MOMENTS if name in line} if shift else line
        if line["actor"] != LEDGER or last is None:
            last = moved["t"] if last is None else max(last, moved["t"])
        yield moved
