"""The messaging core of one process: mailboxes, pending asks, and the way to other processes.

Invariant: an answer reaches the one pending ask that it belongs to, or counts as a dead letter. Mailboxes and tables
are bounded. Messages of one sender keep their order. When a peer's host is lost, every ask to it fails at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Protocol

from runtime.clock import Clock
from runtime.errors import ActorGone, ComputerRLError, MailboxFull, ProtocolError
from runtime.hosts.door import HostTicket
from runtime.logs.writer import DEAD_LETTER, MAILBOX_FULL, ActorLog
from runtime.messaging.message import Envelope, encode_error
from runtime.waits import TaskScope, waiting


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
            await asyncio.wait([entry[1]], timeout=timeout_s)
            if not entry[1].done():  # it may have been let in in the turn of its deadline
                raise MailboxFull(f"mailbox of {self._owner} stayed full for {timeout_s:.3g} s")
        finally:
            if not entry[1].done():
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


MAKE_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 80.0


class Shared:
    """The shared objects of one host."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._closed = False

    async def get(self, who: str, key: str, factory: Callable[[], Awaitable[Any]]) -> Any:
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with waiting(who, "host", f"shared {key}", MAKE_TIMEOUT_S):
            async with lock:
                if self._closed:
                    raise ProtocolError(f"{who} wants shared {key} of a host that stops")
                if key not in self._objects:
                    self._objects[key] = await factory()
                return self._objects[key]

    async def close(self) -> None:
        """Close all objects, newest first; the first error is raised after the last object was closed."""
        self._closed = True
        failures: list[BaseException] = []
        while self._objects:
            results = await asyncio.gather(self._close_one(*self._objects.popitem()), return_exceptions=True)
            failures += [r for r in results if isinstance(r, BaseException)]
        if failures:
            raise failures[0]

    async def _close_one(self, key: str, made: Any) -> None:
        async with waiting("host", f"shared {key}", "close", CLOSE_TIMEOUT_S):
            await made.close()


MAX_PENDING = 100_000
MAX_PARKED = 4096


class Uplink(Protocol):
    """The way to everything that does not live in this process."""

    async def send(self, envelope: Envelope) -> None:
        """Pass a message on. May wait up to its deadline; raises ActorGone or MailboxFull."""

    def answer(self, envelope: Envelope) -> bool:
        """Pass an answer on without waiting; false when its asker can't be reached."""


class Node:
    """Delivery and answers in one process. `name` is the host's name."""

    def __init__(self, name: str, run_dir: Path, clock: Clock, log: ActorLog, uplink: Uplink) -> None:
        self.name = name
        self.run_dir = self.home = run_dir  # a process elsewhere has a folder of its own; `home` is the main host's
        self.clock = clock
        self.log = log
        self.uplink = uplink
        self.ticket: HostTicket | None = None  # by which a process elsewhere gets to the main host's machine
        self.shared = Shared()
        self.mailboxes: dict[str, Mailbox] = {}
        self._full: set[str] = set()  # mailboxes that pushed back and have taken nothing since; actors bound it
        self._pending: dict[str, tuple[str, asyncio.Future[Envelope]]] = {}
        self._parked = TaskScope(self._parked_failed)

    async def ask(self, envelope: Envelope) -> Envelope:
        """Deliver and return the answer; the caller bounds the time."""
        if len(self._pending) >= MAX_PENDING:
            raise MailboxFull(f"{MAX_PENDING} asks are under way in {self.name}")
        future: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        key = envelope.id
        self._pending[key] = (envelope.to, future)
        try:
            if (mailbox := self.mailboxes.get(envelope.to)) is not None:
                await self._put(mailbox, envelope)
            else:
                await self.uplink.send(envelope)
            del envelope  # its body may be large, and the answer late
            return await future
        finally:
            del self._pending[key]

    async def tell(self, envelope: Envelope) -> Envelope | None:
        """Deliver; the answer is that of the other process, None inside this one."""
        if (mailbox := self.mailboxes.get(envelope.to)) is not None:
            await self._put(mailbox, envelope)
            return None
        return await self.ask(envelope)

    def accept(self, envelope: Envelope) -> None:
        """Take a message or an answer that came in from outside. Never waits: a full mailbox parks the message."""
        if envelope.kind in ("reply", "accepted", "error"):
            self.resolve(envelope)
            return
        mailbox = self.mailboxes.get(envelope.to)
        if mailbox is None:
            self.refuse(envelope, ActorGone(f"there is no {envelope.to} in {self.name}"))
        elif mailbox.offer(envelope):
            self._full.discard(envelope.to)
            self._accepted(envelope)
        elif len(self._parked) >= MAX_PARKED:
            self._pushed_back(mailbox, envelope, 0.0)
            self.refuse(envelope, MailboxFull(f"mailbox of {envelope.to} is full and so is the waiting room"))
        else:
            self._parked.spawn(self._park(mailbox, envelope), f"parked {envelope.id}")

    def answer(self, envelope: Envelope) -> None:
        if envelope.reply_to == self.name:
            self.resolve(envelope)
        elif not self.uplink.answer(envelope):
            self._dead(envelope)

    def refuse(self, envelope: Envelope, error: ComputerRLError, origin: str = "runtime") -> None:
        """Answer with an error; `origin` is "handler" when the peer's own code raised it."""
        self.answer(envelope.answer("error", origin, encode_error(error)))

    def resolve(self, envelope: Envelope) -> None:
        _, future = self._pending.get(envelope.id, ("", None))
        if future is not None and not future.done():
            future.set_result(envelope)
        else:
            self._dead(envelope)

    def peers_lost(self, names: Collection[str], reason: str) -> None:
        """Fail every ask to `names`: their host is gone and so are the messages in it."""
        for to, future in list(self._pending.values()):
            if to in names and not future.done():
                future.set_exception(ActorGone(f"{to} is gone: {reason}"))

    async def close(self) -> None:
        """Fail what is pending, end what is parked, close the shared objects."""
        await self._parked.close(1.0)
        for to, future in list(self._pending.values()):
            if not future.done():
                future.set_exception(ActorGone(f"{self.name} stopped while an ask to {to} was under way"))
        await self.shared.close()

    async def _park(self, mailbox: Mailbox, envelope: Envelope) -> None:
        try:
            await self._put(mailbox, envelope)
        except MailboxFull as error:
            self.refuse(envelope, error)
        else:
            self._accepted(envelope)

    async def _put(self, mailbox: Mailbox, envelope: Envelope) -> None:
        began = time.monotonic()
        try:
            await mailbox.put(envelope, margin_left_s(envelope, self.clock.now()))
        except MailboxFull:
            self._pushed_back(mailbox, envelope, time.monotonic() - began)
            raise
        self._full.discard(envelope.to)

    def _pushed_back(self, mailbox: Mailbox, envelope: Envelope, waited_s: float) -> None:
        """One line for as long as the mailbox takes nothing."""
        if envelope.to not in self._full:
            self._full.add(envelope.to)
            self.log.emit(
                MAILBOX_FULL, trace=envelope.trace, name=envelope.to, sender=envelope.sender, message=envelope.message,
                inside=len(mailbox), waited_s=round(waited_s, 3),
            )  # fmt: skip

    def _parked_failed(self, name: str, error: BaseException) -> None:
        self.log.emit(DEAD_LETTER, sender="", to=name, type=type(error).__name__)

    def _accepted(self, envelope: Envelope) -> None:
        if envelope.kind == "tell":
            self.answer(envelope.answer("accepted", "", b""))

    def _dead(self, envelope: Envelope) -> None:
        # The asker's deadline passed first: normal under load, so it is logged at debug.
        self.log.emit(DEAD_LETTER, sender=envelope.sender, to=envelope.to, type=envelope.message)


def margin_left_s(envelope: Envelope, now: float) -> float:
    """Seconds that delivery may take: so much less than the deadline that MailboxFull still reaches the asker."""
    left = envelope.left_s(now)
    return left - min(1.0, left * 0.25)
