"""The log lines of a run that was stopped and resumed, on one clock. Pure.

Invariant: gaps between a stop and its resume are removed, so no report counts them. Within one life all times keep
their distances. The silence before a restarted ledger is the exception, and lasts some seconds at most. A later life's
clock may count from another machine's start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Line = dict[str, Any]
BEGINS, LEDGER = "ledger_opened", "replay"  # a life's first line, but for the ledger's own on what it gives back
_MOMENTS = ("t", "t0", "t1")  # seconds of the run's clock


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
