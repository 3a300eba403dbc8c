"""What tests listen with: a log that remembers, and waiting until something shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from runtime.logs.events import Event
from runtime.logs.reader import read_logs

T = TypeVar("T")
LONGEST_S = 100.0  # under the limit of a test: a machine that does much else is no failure


class Heard:
    """A log that remembers, in the order of events."""

    def __init__(self) -> None:
        self.lines: list[tuple[Event, dict[str, Any]]] = []

    def emit(self, event: Event, /, **fields: Any) -> None:
        event.check(fields)
        self.lines.append((event, fields))

    def of(self, event: Event) -> list[dict[str, Any]]:
        """The fields of each time that it was told."""
        return [fields for one, fields in self.lines if one is event]


async def until(ready: Callable[[], T | Awaitable[T]]) -> T:
    """What `ready` finds, once it is anything; fail after `LONGEST_S`."""
    end = time.monotonic() + LONGEST_S
    while True:
        seen = ready()
        found = await seen if isinstance(seen, Awaitable) else seen
        if found:
            return found
        assert time.monotonic() < end, "it never came"
        await asyncio.sleep(0.02)


async def logged(run_dir: Path, event: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """The lines of an event with these fields, once a run has logged so many."""

    def found() -> list[dict[str, Any]]:
        lines = [line for line in read_logs(run_dir, event=event) if fields.items() <= line.items()]
        return lines if len(lines) >= count else []

    return await until(found)


def gone(pid: int) -> bool:
    """Whether a process has ended, be it that its parent has not yet asked."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
