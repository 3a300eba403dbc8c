"""Asks that wait for work.

Invariant: a parked ask is answered once, by its deadline at the latest, in the order of arrival. Work that was taken
for an ask is never dropped because its deadline came meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")


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
        self.late = False


class ParkingLot(Generic[AskT, AnswerT]):
    """Asks of one kind, answered together: `serve` takes asks and gives one answer or None for each."""

    def __init__(self, serve: Callable[[list[AskT]], Awaitable[list[AnswerT | None]]], change: Change) -> None:
        self._serve = serve
        self._change = change
        self._queue: list[_Parked[AskT, AnswerT]] = []
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def give_up(self, over: Callable[[AskT], bool]) -> None:
        """Answer None to those asks that are `over`, but for the ones that are being served."""
        for entry in self._queue:
            if not entry.in_service and not entry.answer.done() and over(entry.ask):
                entry.answer.set_result(None)

    async def park(self, ask: AskT, wait_s: float) -> AnswerT | None:
        """The answer to `ask`, or None after `wait_s` seconds without one."""
        entry: _Parked[AskT, AnswerT] = _Parked(ask)
        self._queue.append(entry)
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
            self._queue.remove(entry)

    async def run(self) -> None:
        """Serve what is parked at every arrival and every change, until cancelled; the owner spawns this."""
        self._change.listeners.add(self._wake)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if entries := [entry for entry in self._queue if not entry.answer.done()]:
                    await self._answer(entries)
        finally:
            self._change.listeners.discard(self._wake)

    async def _answer(self, entries: list[_Parked[AskT, AnswerT]]) -> None:
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
            if not entry.answer.done() and (answer is not None or entry.late):
                entry.answer.set_result(answer)
