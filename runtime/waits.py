"""Who waits for what from whom.

Invariant: a wait has a finite deadline and stands in the registry from its first to its last moment. It ends at its
deadline at the latest.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from runtime.errors import DeadlineExceeded, MailboxFull, ProtocolError
from runtime.logs.writer import current_trace

MAX_WAITS = 100_000


class PendingWait(msgspec.Struct, frozen=True, kw_only=True):
    """One wait under way. `since` and `deadline` are monotonic seconds."""

    who: str
    whom: str
    what: str
    since: float
    deadline: float
    trace: str | None


_waits: dict[int, PendingWait] = {}
_ids = itertools.count()


def waits_now() -> list[tuple[int, PendingWait]]:
    """The waits of this process with their ids, oldest first."""
    return list(_waits.items())


@asynccontextmanager
async def waiting(
    who: str, whom: str, what: str, deadline_s: float, *, trace: str | None = None
) -> AsyncIterator[None]:
    """Run the body for at most `deadline_s` seconds, registered as `who` waiting for `what` from `whom`.

    Raises DeadlineExceeded at the deadline and ProtocolError for a deadline that is no finite number.
    """
    if not math.isfinite(deadline_s):
        raise ProtocolError(f"{who} waits for {what} from {whom} without a deadline")
    if deadline_s <= 0:
        raise DeadlineExceeded(f"{who} has no time left to wait for {what} from {whom}")
    if len(_waits) >= MAX_WAITS:
        raise MailboxFull(f"{MAX_WAITS} waits are under way in this process")
    now, key = time.monotonic(), next(_ids)
    _waits[key] = PendingWait(
        who=who,
        whom=whom,
        what=what,
        since=now,
        deadline=now + deadline_s,
        trace=trace if trace is not None else current_trace.get(),
    )
    try:
        async with asyncio.timeout(deadline_s) as scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise DeadlineExceeded(f"{who} waited {deadline_s:g} s for {what} from {whom}") from error
    finally:
        del _waits[key]
