"""The bounded queue in front of an actor.

Invariant: at most `capacity` messages are inside and `max_waiters` senders wait outside. Messages of one sender keep
their order. A message leaves only when its handler has room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from runtime.errors import MailboxFull
from runtime.messaging.envelope import Envelope


class Mailbox:
    """Many senders, one reader."""

    def __init__(self, owner: str, capacity: int, max_waiters: int = 1024) -> None:
        self._owner = owner
        self._capacity = capacity
        self._max_waiters = max_waiters
        self._items: deque[Envelope] = deque()
        self._waiters: deque[tuple[Envelope, asyncio.Future[None]]] = deque()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    def offer(self, envelope: Envelope) -> bool:
        """Put `envelope` in if there is room and no sender waits before it."""
        if self._waiters or len(self._items) >= self._capacity:
            return False
        self._items.append(envelope)
        self._changed.set()
        return True

    async def put(self, envelope: Envelope, timeout_s: float) -> None:
        """Put `envelope` in, waiting up to `timeout_s`. Raises MailboxFull."""
        if self.offer(envelope):
            return
        if len(self._waiters) >= self._max_waiters or timeout_s <= 0:
            raise MailboxFull(f"mailbox of {self._owner} is full ({len(self._items)} messages)")
        entry = (envelope, asyncio.get_running_loop().create_future())
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await entry[1]
        except TimeoutError as error:
            raise MailboxFull(f"mailbox of {self._owner} stayed full for {timeout_s:.3g} s") from error
        finally:
            if not entry[1].done() or entry[1].cancelled():
                self._waiters = deque(w for w in self._waiters if w is not entry)

    async def get(self, ready: Callable[[Envelope], bool]) -> Envelope:
        """The oldest envelope that is `ready`. An idle actor waits here as long as it takes: no ask depends on it."""
        while True:
            self._changed.clear()
            for position, envelope in enumerate(self._items):
                if ready(envelope):
                    del self._items[position]
                    self._admit()
                    return envelope
            await self._changed.wait()

    def poke(self) -> None:
        """Look again: a handler has room."""
        self._changed.set()

    def drain(self) -> list[Envelope]:
        """Take everything out, those of waiting senders included."""
        taken = list(self._items)
        self._items.clear()
        while self._waiters:
            self._admit()
            taken.extend(self._items)
            self._items.clear()
        return taken

    def _admit(self) -> None:
        while self._waiters and len(self._items) < self._capacity:
            envelope, future = self._waiters.popleft()
            if not future.done():
                self._items.append(envelope)
                future.set_result(None)
                self._changed.set()
