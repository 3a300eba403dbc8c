"""Tasks with an owner, waits with a deadline, and the report of what does not move.

Invariant: a task ends with its scope. A wait has a finite deadline and ends by it. A wait past its deadline is reported
once, and so is a message that keeps an actor busy for too long.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from runtime.errors import DeadlineExceeded, MailboxFull, ProtocolError
from runtime.logs.writer import current_trace

OnFailure = Callable[[str, BaseException], None]


class TaskScope:
    """Owns tasks. `on_failure(name, error)` is called for a task that ends by an exception."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(task.get_name(), error)

    async def close(self, grace_s: float) -> list[str]:
        """Cancel and await all tasks; returns the names of those still running after `grace_s` seconds."""
        current = asyncio.current_task()
        end = asyncio.get_running_loop().time() + grace_s
        while tasks := [t for t in self._tasks if t is not current]:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return sorted(t.get_name() for t in tasks)
            for task in tasks:
                task.cancel()
            # A task may swallow one cancellation (a library's own timeout does); ask again.
            await asyncio.wait(tasks, timeout=min(left, 5.0))
        return []


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


class WaitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One wait of the actor: for `what` from `whom`."""

    whom: str
    what: str
    waited_s: float
    left_s: float
    trace: str | None


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One actor. `current` is the message it has been busy on longest, from `sender`, for `busy_s` seconds."""

    name: str
    host: str
    machine: str = ""  # of the host's process, where it is on another one than the run
    pid: int
    state: str  # starting, running, restarting, stopping, failed, host_lost or host_silent
    doing: str
    mailbox: int = 0
    in_flight: int = 0
    current: str | None = None
    sender: str | None = None
    busy_s: float = 0.0
    restarts: int = 0
    waits: list[WaitStatus] = []


GRACE_S = 2.0  # a wait this far past its deadline was not ended by it


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """A message in a handler: `actor` works on `message` from `sender` since `since` (monotonic seconds).

    `limit_s` is its own limit in place of the usual one.
    """

    id: str
    actor: str
    message: str
    sender: str
    since: float
    trace: str | None
    limit_s: float | None


class Stall(msgspec.Struct, frozen=True):
    """`who` waits for `what` from `whom` for `waited_s` seconds."""

    id: str
    who: str
    what: str
    whom: str
    waited_s: float
    cause: str  # "busy" or "overdue"
    trace: str | None


def diagnose(now: float, waits: Iterable[tuple[int, PendingWait]], busy: Iterable[Busy], after_s: float) -> list[Stall]:
    """All stalls at `now`, longest first; a message has `after_s` unless it has a limit of its own. Pure."""
    stalls = [
        Stall(f"wait {key}", wait.who, wait.what, wait.whom, now - wait.since, "overdue", wait.trace)
        for key, wait in waits
        if now > wait.deadline + GRACE_S
    ]
    stalls += [
        Stall(f"message {work.id}", work.sender, work.message, work.actor, now - work.since, "busy", work.trace)
        for work in busy
        if now - work.since > (after_s if work.limit_s is None else work.limit_s)
    ]
    return sorted(stalls, key=lambda stall: -stall.waited_s)
