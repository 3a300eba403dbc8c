"""Naming a disk that is slow.

Invariant: work on a file that takes longer than `SLOW_AFTER_S` is logged once while it lasts, with file and seconds.
It is logged once more when it ends. The caller decides how long it may last at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from runtime.logs.events import Event
from runtime.logs.runtime_events import DISK_ANSWERS, DISK_SLOW

SLOW_AFTER_S = 2.0


class Log(Protocol):
    """Where events go: an actor's log."""

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Write one event."""


@asynccontextmanager
async def on_disk(log: Log | None, file: str, what: str) -> AsyncIterator[None]:
    """Run the body, which does `what` to `file` in a thread."""
    began = time.monotonic()
    logged = False

    def slow() -> None:
        nonlocal logged
        logged = True
        if log is not None:
            log.emit(DISK_SLOW, file=file, what=what, waited_s=round(time.monotonic() - began, 3))

    timer = asyncio.get_running_loop().call_later(SLOW_AFTER_S, slow)
    try:
        yield
    finally:
        timer.cancel()
        if logged and log is not None:
            log.emit(DISK_ANSWERS, file=file, what=what, took_s=round(time.monotonic() - began, 3))
