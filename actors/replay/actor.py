"""The replay actor: the ledger's only door, and the asks that wait there for work.

Invariant: the actor decides nothing and remembers nothing that a restart would miss. A parked ask is answered once, by
its deadline at the latest, in the order of arrival. Work that was taken for an ask is never dropped because its
deadline came meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from actors.replay import events, messages
from actors.replay.config import LedgerSettings
from actors.replay.database.ledger_file import LEDGER
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import demo_tasks, episodes, figures, phases, retention, training
from actors.replay.ledger.store import Logged, Store
from runtime.actor import Actor, handles
from runtime.disk import AGAIN_S
from runtime.errors import DiskRefuses
from runtime.messaging.message import Done, Message
from runtime.segments import SegmentStore

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")
FEW = 8  # parked asks that a change is tried on first; most changes make room for one or for a group


class Change:
    """A number that grows, and its listeners."""

    def __init__(self) -> None:
        self.revision = 0
        self.listeners: set[asyncio.Event] = set()

    def happened(self) -> None:
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
        """Serve the oldest few, more of the old as long as each of them gets something, and last all that is new."""
        few, got = FEW, True
        while True:
            old = list(itertools.islice((entry for entry in self._served if not entry.answer.done()), few))
            last = not got or len(old) < few  # what is left out of the old gets nothing
            entries = old + [entry for entry in self._new if last and not entry.answer.done()]
            answers = await self._answer(entries) if entries else []
            got = bool(answers) and answers[-1] is not None
            if last or not (got or self._new):
                return
            few = 4 * few if got else FEW

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


SEGMENTS = "segments"
IDLE_S = 60.0  # how long nothing may be due before the reservations' deadlines are looked at again
FREEING = (events.STEP_TRAINED, events.GROUP_ENDED, events.EVAL_ROUND_CLOSED)  # after these, payloads may go
T = TypeVar("T")


def _carried_out(message: type[Message], operation: Callable[[Transaction, Any], Any]) -> Callable[..., Awaitable[Any]]:
    """A handler that answers `message` with what one transaction, `operation`, returns."""

    async def handler(actor: ReplayActor, msg: Any) -> Any:
        return await actor._do(operation, msg)

    return handles(message, concurrent=True)(handler)


class ReplayActor(Actor):
    """Owns `<run_dir>/ledger.sqlite`. Config: `LedgerSettings`."""

    def __init__(self, config: LedgerSettings) -> None:
        super().__init__(config)
        self.settings = config
        self._change = Change()
        self._quarantined: set[str] = set()  # tasks, for `doing`; the run's tasks bound it
        self._handed_out = asyncio.Event()
        self._something_ended = asyncio.Event()
        self._seats: ParkingLot[messages.Reserve, messages.Reservation | messages.NoWork] = ParkingLot(
            self._reserve, self._change
        )

    async def on_start(self) -> None:
        self._store = Store(self.ctx.run_dir / LEDGER, self.settings, self._changed, self.ctx.log)
        opened = await self._store.open()
        self.ctx.log.emit(
            events.LEDGER_OPENED, fresh=opened.fresh, phase=opened.phase, released=opened.released,
            groups_returned=opened.returned,
        )  # fmt: skip
        self._quarantined.update(opened.quarantined)
        self.ctx.spawn(self._store.serve(), "store")
        self.ctx.spawn(self._seats.run(), "seats")
        self.ctx.spawn(self._expire(), "expiry")
        self.ctx.spawn(self._collect(), "memory")
        await self._do(demo_tasks.label)
        if self.settings.demos.source:
            await self._store.do(self._import_demos)

    async def on_stop(self) -> None:
        await self._store.close()

    def doing(self) -> str:
        rest = f", {len(self._quarantined)} tasks quarantined" if self._quarantined else ""
        return f"revision {self._change.revision}, {len(self._seats)} seats waiting{rest}"

    def _changed(self, logged: Logged) -> None:
        for event, fields in logged:
            self.ctx.log.emit(event, **fields)
            if event is events.TASK_QUARANTINED:
                self._quarantined.add(fields["task"])
            elif event is events.TASK_LET_BACK:
                self._quarantined.discard(fields["task"])
        if any(event in FREEING for event, _ in logged):
            self._something_ended.set()
        self._change.happened()

    async def _do(self, operation: Callable[..., T], *arguments: object) -> T:
        return await self._store.do(lambda tx: operation(tx, *arguments))

    async def _once_the_disk_takes_it(self, operation: Callable[..., T], *arguments: object) -> T:
        while True:
            try:
                return await self._do(operation, *arguments)
            except DiskRefuses:
                await self.ctx.clock.sleep(AGAIN_S)

    # -- seats

    @handles(messages.Reserve, concurrent=True, limit=16_384)
    async def reserve(self, msg: messages.Reserve) -> messages.Reservation | messages.NoWork:
        """Park the seat until there is work.

        A request of a life that is over gets no work: it would not be played, and would count as a fault.
        """
        return await self._seats.park(msg, msg.wait_s, msg.seat) or messages.NoWork(final=False)

    async def _reserve(self, requests: list[messages.Reserve]) -> list[messages.Reservation | messages.NoWork | None]:
        try:
            answers = await self._do(episodes.reserve_many, requests)
        except DiskRefuses:
            return [None] * len(requests)  # nothing new is begun that could not be stored
        self._handed_out.set()
        return answers

    commit = _carried_out(messages.Commit, episodes.commit)
    release = _carried_out(messages.Release, episodes.release)

    async def _expire(self) -> None:
        while True:
            due = await self._once_the_disk_takes_it(episodes.expire)
            self._handed_out.clear()
            wait_s = IDLE_S if due is None else min(IDLE_S, max(0.0, due - self.ctx.clock.now()) + 0.1)
            if due is None:
                await fired(self._handed_out, wait_s)
            else:
                await self.ctx.clock.sleep(wait_s)

    # -- the learner

    @handles(messages.Take, concurrent=True)
    async def take(self, msg: messages.Take) -> messages.Batch | messages.NothingToTake:
        end = self.ctx.clock.now() + msg.wait_s
        while True:
            revision = self._change.revision
            answer = await self._do(training.take, msg)
            if answer is not None:
                return answer
            if not await self._change.after(revision, end - self.ctx.clock.now()):
                return messages.NothingToTake(final=False)

    trained = _carried_out(messages.Trained, training.trained)
    unreadable = _carried_out(messages.Unreadable, training.unreadable)
    checkpointed = _carried_out(messages.Checkpointed, training.checkpointed)
    checkpoint_digests = _carried_out(messages.GetCheckpointDigests, training.digests)
    resumed = _carried_out(messages.LearnerResumed, training.resumed)

    async def _collect(self) -> None:
        folder = self.ctx.run_dir / SEGMENTS
        while True:
            await self._something_ended.wait()
            self._something_ended.clear()
            while await self._once_the_disk_takes_it(retention.collect) == retention.AT_ONCE:
                continue
            # A transaction of its own: bytes go only after the ledger durably says that they are needed no more.
            await self._once_the_disk_takes_it(retention.sweep, folder)
            while await self._once_the_disk_takes_it(retention.unswept):
                await self._once_the_disk_takes_it(retention.sweep, folder)

    # -- samplers and the supervisor

    serving = _carried_out(messages.Serving, phases.serving)
    open_eval = _carried_out(messages.OpenEval, phases.open_round)
    set_phase = _carried_out(messages.SetPhase, phases.set_phase)

    @handles(messages.GetFigures, concurrent=True)
    async def figures(self, _msg: messages.GetFigures) -> messages.Figures:
        # Read before the job is queued: a snapshot may be newer than its revision says, never older.
        return await self._do(figures.figures, self._change.revision)

    @handles(messages.WaitFigures, concurrent=True)
    async def wait_figures(self, msg: messages.WaitFigures) -> messages.Figures:
        await self._change.after(msg.since, msg.wait_s)
        return await self._do(figures.figures, self._change.revision)

    @handles(messages.CloseRun, concurrent=True)
    async def close_run(self, _msg: messages.CloseRun) -> Done:
        return await self._do(phases.close_run)

    def _import_demos(self, tx: Transaction) -> None:
        segments = SegmentStore(self.ctx.run_dir / SEGMENTS, self.ctx.name)
        try:
            demo_tasks.import_demos(tx, Path(self.settings.demos.source), segments, self.ctx.run_dir)
        finally:
            segments.close()
