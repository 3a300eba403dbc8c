"""The life of one actor (start, serve, fail, start again, stop), and the actors of one process.

Invariant: whatever ends a life, its handlers and tasks have ended, and `on_stop` was called once. Every message that
was in a handler is answered before the next life starts. The mailbox outlives all lives.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from runtime.actor import Actor, Context, Handler
from runtime.errors import ActorFailed, ActorGone, ComputerRLError, ConfigError, ProtocolError
from runtime.logs import writer as logs
from runtime.messaging.message import Envelope, decode, encode, reply_type
from runtime.messaging.node import Mailbox, Node
from runtime.spec import WireSpec
from runtime.supervision import GiveUp, RestartBudget
from runtime.waits import (
    ActorStatus,
    Busy,
    PendingWait,
    Stall,
    TaskScope,
    WaitStatus,
    diagnose,
    waiting,
    waits_now,
)

MOST_WAITS = 20  # of one actor in its status
CONFIG_S = 600.0  # for an actor to take a new config: it may finish what it does by the old one


class Cell:
    """Keeps one actor alive. `on_give_up(name, reason)` is called when the restart budget is spent."""

    def __init__(self, spec: WireSpec, node: Node, on_give_up: Callable[[str, str], None]) -> None:
        self.spec = spec
        self.name = spec.name
        self.state = "starting"
        self.restarts = 0
        self.in_flight: dict[str, Busy] = {}  # by envelope id
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.mailbox = Mailbox(spec.name, spec.mailbox)
        self._node = node
        self._log = node.log.of(spec.name)
        self._on_give_up = on_give_up
        self._budget = RestartBudget(spec.name, spec.restart)
        self._stop = asyncio.Event()
        self._actor: Actor | None = None
        self._running: Counter[str] = Counter()
        self._failed: asyncio.Future[tuple[str, BaseException]] | None = None
        node.mailboxes[spec.name] = self.mailbox

    async def live(self) -> None:
        while not self._stop.is_set():
            failure = await self._one_life()
            if failure is None:
                break
            where, error = failure
            cause = f"{type(error).__name__}: {error}"
            self._node.log.emit(
                logs.ACTOR_FAILED, name=self.name, where=where, error=cause, traceback=traceback_lines(error)
            )
            decision = self._budget.on_failure(
                self._node.clock.now(), f"{where}: {cause}", curable=not isinstance(error, ConfigError)
            )
            if isinstance(decision, GiveUp):
                self.state = "failed"
                self._bury(decision.reason)
                if not self.started.done():
                    self.started.set_exception(ActorFailed(type(error).__name__, decision.reason))
                self._on_give_up(self.name, decision.reason)
                return
            self.restarts += 1
            self.state = "restarting"
            self._node.log.emit(logs.ACTOR_RESTARTS, name=self.name, delay_s=decision.delay_s, restarts=self.restarts)
            with suppress(TimeoutError):
                async with asyncio.timeout(decision.delay_s):
                    await self._stop.wait()
        self.state = "stopped"
        self._bury("it stopped")
        if not self.started.done():
            self.started.set_exception(ActorGone(f"{self.name} was stopped before it had started"))
        self._node.log.emit(logs.ACTOR_STOPPED, name=self.name)

    def stop(self) -> None:
        self._stop.set()

    async def configure(self, spec: WireSpec) -> None:
        """Give the actor the config of `spec`, now or as soon as it has started, and all its later lives."""
        self.spec = spec
        if self._actor is not None and self.state == "running":
            async with waiting(self._node.name, self.name, "on_config", CONFIG_S):
                await self._actor.on_config(spec.made_config())

    def close(self) -> None:
        """Release the log. After `live` has ended."""
        if self.started.done() and not self.started.cancelled():
            self.started.exception()  # a failure that no caller awaited has already been escalated
        self._log.close()

    def status(self, mine: Sequence[PendingWait]) -> ActorStatus:
        """What the actor is doing. `mine` are its waits, oldest first."""
        now = time.monotonic()
        oldest = min(self.in_flight.values(), key=lambda work: work.since, default=None)
        waits = [
            WaitStatus(whom=w.whom, what=w.what, waited_s=now - w.since, left_s=w.deadline - now, trace=w.trace)
            for w in mine[:MOST_WAITS]
        ]
        return ActorStatus(
            name=self.name,
            host=self._node.name,
            pid=os.getpid(),
            state=self.state,
            doing=self._doing(),
            mailbox=len(self.mailbox),
            in_flight=len(self.in_flight),
            current=oldest.message if oldest else None,
            sender=oldest.sender if oldest else None,
            busy_s=now - oldest.since if oldest else 0.0,
            restarts=self.restarts,
            waits=waits,
        )

    def _doing(self) -> str:
        try:
            return "" if self._actor is None else str(self._actor.doing())[:200]
        except Exception as error:  # noqa: BLE001 - an actor that can't say what it does still has a status
            return f"doing() failed: {error!r:.150}"

    async def _one_life(self) -> tuple[str, BaseException] | None:
        """One incarnation; returns where it failed and why, None when it was stopped."""
        failed = self._failed = asyncio.get_running_loop().create_future()
        scope = TaskScope(self._part_failed)
        self.state = "starting"
        scope.spawn(self._serve(scope), f"{self.name}:serve")
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({failed, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            await asyncio.gather(stop, return_exceptions=True)
            if self._stop.is_set():
                self.state = "stopping"
            await self._end(scope)
        return failed.result() if failed.done() else None

    def _part_failed(self, name: str, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result((name.removeprefix(f"{self.name}:"), error))

    async def _serve(self, scope: TaskScope) -> None:
        began = time.monotonic()
        spec = self.spec
        actor: Actor = spec.build()
        actor.ctx = Context(self._node, self.name, self._log, scope)
        self._actor = actor
        handlers = type(actor).handlers()
        async with waiting(self._node.name, self.name, "on_start", self.spec.start_timeout_s):
            await actor.on_start()
        self.state = "running"
        if self.spec is not spec:  # it came meanwhile
            await self.configure(self.spec)
        self._budget.up(self._node.clock.now())
        self._node.log.emit(
            logs.ACTOR_STARTED,
            name=self.name,
            factory=self.spec.factory,
            start_s=round(time.monotonic() - began, 3),
            restarts=self.restarts,
        )
        if not self.started.done():
            self.started.set_result(None)
        self._running.clear()

        def slot(envelope: Envelope) -> str:
            handler = handlers.get(envelope.message)
            return envelope.message if handler is None or handler.concurrent else ""

        def ready(envelope: Envelope) -> bool:
            if self._failed is None or self._failed.done() or self._stop.is_set():
                return False  # what is taken now might never begin, and so never be answered
            handler = handlers.get(envelope.message)
            return handler is None or self._running[slot(envelope)] < handler.limit

        while True:
            envelope = await self.mailbox.get(ready)
            handler = handlers.get(envelope.message)
            if handler is None:
                text = f"{self.name} does not understand {envelope.message}"
                self._refuse(envelope, ProtocolError(text))
            elif envelope.kind == "tell" or envelope.left_s(self._node.clock.now()) > 0:
                # An ask that has expired has no asker left.
                self._running[slot(envelope)] += 1
                self.in_flight[envelope.id] = Busy(
                    id=envelope.id,
                    actor=self.name,
                    message=envelope.message,
                    sender=envelope.sender,
                    since=time.monotonic(),
                    trace=envelope.trace,
                    limit_s=handler.slow_after_s,
                )
                scope.spawn(self._handle(actor, envelope, handler, slot(envelope)), f"{self.name}:{envelope.message}")

    async def _handle(self, actor: Actor, envelope: Envelope, handler: Handler, slot: str) -> None:
        logs.current_trace.set(envelope.trace)
        try:
            message = decode(envelope.body, handler.message)
            reply = await handler.call(actor, message)
            if envelope.kind == "ask":
                self._node.answer(self._reply(envelope, handler, reply))
        except ComputerRLError as error:
            self._refuse(envelope, error)
        except Exception as error:
            self._part_failed(envelope.message, error)  # first, so that this life serves nothing more
            self._node.refuse(envelope, ActorFailed(type(error).__name__, str(error)), "handler")
            raise
        except asyncio.CancelledError:
            if envelope.kind == "ask":
                self._node.refuse(envelope, ActorGone(f"{self.name} stopped or restarted while handling this"))
            raise
        finally:
            self.in_flight.pop(envelope.id, None)
            self._running[slot] -= 1
            self.mailbox.poke()

    def _reply(self, envelope: Envelope, handler: Handler, reply: Any) -> Envelope:
        body = encode(reply)
        decode(body, reply_type(handler.message))  # a wrong reply is this actor's defect, not its asker's
        return envelope.answer("reply", type(reply).__name__, body)

    def _refuse(self, envelope: Envelope, error: ComputerRLError) -> None:
        if envelope.kind == "ask":
            self._node.refuse(envelope, error, "handler")
        else:
            self._node.log.emit(
                logs.TELL_FAILED,
                trace=envelope.trace,
                name=self.name,
                message=envelope.message,
                sender=envelope.sender,
                error=f"{type(error).__name__}: {error}",
            )

    async def _end(self, scope: TaskScope) -> None:
        if left := await scope.close(self.spec.stop_timeout_s):
            self._node.log.emit(logs.TASK_OUTLIVES, name=self.name, tasks=left)
        actor, self._actor = self._actor, None
        if actor is None:
            return
        results = await asyncio.gather(self._on_stop(actor), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                cause = f"{type(error).__name__}: {error}"
                self._node.log.emit(logs.STOP_FAILED, name=self.name, error=cause, traceback=traceback_lines(error))

    async def _on_stop(self, actor: Actor) -> None:
        async with waiting(self._node.name, self.name, "on_stop", self.spec.stop_timeout_s):
            await actor.on_stop()

    def _bury(self, reason: str) -> None:
        self._node.mailboxes.pop(self.name, None)
        for envelope in self.mailbox.drain():
            if envelope.kind == "ask":
                self._node.refuse(envelope, ActorGone(f"{self.name} is gone: {reason}"))


def traceback_lines(error: BaseException) -> list[str]:
    """The traceback as lines for a log field."""
    text = "".join(traceback.format_exception(error))
    return text.splitlines()[-60:]


class InlineHost:
    """The cells of one process: the entry point's, and equally a child's."""

    def __init__(self, node: Node, on_give_up: Callable[[str, str], None]) -> None:
        self.node = node
        self.cells: dict[str, Cell] = {}
        self._on_give_up = on_give_up
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._scope = TaskScope(lambda name, error: on_give_up(name, f"the runtime failed: {error!r}"))

    def add(self, spec: WireSpec) -> asyncio.Future[None]:
        """Make the actor known and start it; the future ends when `on_start` has, or fails with ActorFailed."""
        if spec.name in self.cells:
            raise ConfigError(f"there are two actors called {spec.name}")
        cell = self.cells[spec.name] = Cell(spec, self.node, self._on_give_up)
        self._lives[spec.name] = self._scope.spawn(cell.live(), spec.name)
        return cell.started

    async def configure(self, specs: Sequence[WireSpec]) -> None:
        """Give actors new configs; returns when each has taken its own. Raises the first error of theirs."""
        await asyncio.gather(*(self.cells[spec.name].configure(spec) for spec in specs))

    async def remove(self, names: Sequence[str]) -> None:
        known = [name for name in names if name in self.cells]
        for name in known:
            self.cells[name].stop()
        await asyncio.gather(*(self._lives[name] for name in known), return_exceptions=True)
        for name in known:
            self.cells.pop(name).close()
            del self._lives[name]

    def statuses(self) -> list[ActorStatus]:
        """What each actor here is doing. One pass over the waits, and one over the actors."""
        waits: defaultdict[str, list[PendingWait]] = defaultdict(list)
        for _, wait in waits_now():
            waits[wait.who].append(wait)
        return [cell.status(waits.get(name, ())) for name, cell in self.cells.items()]

    async def close(self) -> None:
        await self.remove(list(self.cells))
        await self._scope.close(5.0)
        await self.node.close()


class StallWatch:
    """Looks at one host's actors and waits from time to time and logs each stall once."""

    def __init__(self, host: InlineHost, after_s: float, period_s: float | None = None) -> None:
        self._host = host
        self._after_s = after_s
        self._period_s = period_s if period_s is not None else max(0.05, min(5.0, after_s / 4))
        self._reported: set[str] = set()
        self._lag_s = 0.0

    def take_lag_s(self) -> float:
        """How late the loop was at the latest since the last call, in seconds; it is sampled once a period."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._period_s)
            lag = time.monotonic() - before - self._period_s
            self._lag_s = max(self._lag_s, lag)
            if lag > self._after_s:
                self._host.node.log.emit(logs.HOST_LAGS, lag_s=round(lag, 3))
            self.look(time.monotonic())

    def _since(self, stall: Stall) -> str:
        wall = self._host.node.clock.wall() - stall.waited_s
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")

    def look(self, now: float) -> list[Stall]:
        """Log the stalls that are new at `now` and return all."""
        busy = (work for cell in self._host.cells.values() for work in cell.in_flight.values())
        stalls = diagnose(now, waits_now(), busy, self._after_s)
        for stall in stalls:
            if stall.id not in self._reported:
                self._host.node.log.emit(
                    logs.STALL,
                    trace=stall.trace,
                    who=stall.who,
                    what=stall.what,
                    whom=stall.whom,
                    since=self._since(stall),
                    waited_s=round(stall.waited_s, 3),
                    cause=stall.cause,
                )
        self._reported = {stall.id for stall in stalls}
        return stalls
