"""Asks that wait for work.

Invariant: a parked ask is answered once, by its deadline at the latest, in the order of arrival. Work that was taken
for an ask is never dropped because its deadline came meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")
FEW = 8  # parked asks that a change is tried on first; most changes make room for one or for a group


class Change:
    """A number that grows, and its listeners."""

    def __init__(self) -> None:
        self.revision = 0
        self.listeners: set[asyncio.Event] = set()

    def happened(self) -> None:
        """Wake all listeners."""
        self.revision += 1
        for listener in self.listeners:
            listener.set()

    async def after(self, revision: int, timeout_s: float) -> bool:
        """Wait until the number is above `revision`; False when it was not within `timeout_s`."""
        if self.revision > revision:
            return True
        listener = asyncio.Event()
        self.listeners.add(listener)
        try:
            return await fired(listener, timeout_s) or self.revision > revision
        finally:
            self.listeners.discard(listener)


async def fired(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for `event` for at most `timeout_s`; whether it came."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        return False
    return True


class _Parked(Generic[AskT, AnswerT]):
    def __init__(self, ask: AskT) -> None:
        self.ask = ask
        self.answer: asyncio.Future[AnswerT | None] = asyncio.get_running_loop().create_future()
        self.in_service = False
        self.late = False  # the answer under way is the last that it waits for


class ParkingLot(Generic[AskT, AnswerT]):
    """Asks of one kind, answered together: `serve` takes asks and gives one answer or None for each.

    All wait for the same: what is not there for an ask is there for no later one. So a change costs what it can
    satisfy, and not as much as is parked.
    """

    def __init__(self, serve: Callable[[list[AskT]], Awaitable[list[AnswerT | None]]], change: Change) -> None:
        self._serve = serve
        self._change = change
        # In the order of arrival; what was served without an answer came before all that was not served yet.
        self._served: dict[_Parked[AskT, AnswerT], None] = {}
        self._new: dict[_Parked[AskT, AnswerT], None] = {}
        self._newest: dict[str, _Parked[AskT, AnswerT]] = {}  # of each owner
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._served) + len(self._new)

    async def park(self, ask: AskT, wait_s: float, owner: str) -> AnswerT | None:
        """The answer to `ask`, or None after `wait_s` seconds without one.

        An older ask of the same owner is over: it gets None, or what it is being served.
        """
        if (older := self._newest.get(owner)) is not None:
            older.late = True
            if not older.in_service and not older.answer.done():
                older.answer.set_result(None)
        entry = self._newest[owner] = _Parked[AskT, AnswerT](ask)
        self._new[entry] = None
        self._wake.set()
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                return await asyncio.shield(entry.answer)
        except TimeoutError:
            if not entry.in_service and not entry.answer.done():
                return None
            # The answer under way may hold work; it comes as soon as the disk has it.
            entry.late = True
            return await entry.answer
        finally:
            self._served.pop(entry, None)
            self._new.pop(entry, None)
            if self._newest.get(owner) is entry:
                del self._newest[owner]

    async def run(self) -> None:
        """Serve what is parked at every arrival and every change, until cancelled; the owner spawns this."""
        self._change.listeners.add(self._wake)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._round()
        finally:
            self._change.listeners.discard(self._wake)

    async def _round(self) -> None:
        """Serve the oldest few and all that is new, then more of the old for as long as each of them got something."""
        few = FEW
        while True:
            old = list(itertools.islice((entry for entry in self._served if not entry.answer.done()), few))
            entries = old + [entry for entry in self._new if not entry.answer.done()]
            if not entries:
                return
            answers = await self._answer(entries)
            if not old or answers[len(old) - 1] is None:
                return
            few *= 4

    async def _answer(self, entries: list[_Parked[AskT, AnswerT]]) -> list[AnswerT | None]:
        for entry in entries:
            entry.in_service = True
        try:
            answers = await self._serve([entry.ask for entry in entries])
        except BaseException:
            for entry in entries:
                entry.answer.cancel()
            raise
        for entry, answer in zip(entries, answers, strict=True):
            entry.in_service = False
            if entry in self._new:
                del self._new[entry]
                self._served[entry] = None
            if not entry.answer.done() and (answer is not None or entry.late):
                entry.answer.set_result(answer)
        return answers
