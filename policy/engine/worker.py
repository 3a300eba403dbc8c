"""The compute thread and its bridge to the event loop.

Invariant: only the compute thread touches the core. The event loop sends it calls and gets snapshots back, so HTTP
stays responsive during long passes. When the thread fails, all waiting requests fail with it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from policy.engine.core import EngineCore
from policy.engine.scheduler import Sequence
from policy.errors import EngineError

T = TypeVar("T")


@dataclass(slots=True)
class Subscription:
    """Where the event loop waits for a sequence; holds its newest snapshot only."""

    sequence: Sequence
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    latest: Sequence | None = None
    error: str | None = None

    async def next(self) -> Sequence:
        """The newest snapshot, once there is a new one. Raises EngineError when the engine failed."""
        await self.changed.wait()
        self.changed.clear()
        if self.latest is None:
            raise EngineError(self.error or "the engine stopped")
        return self.latest


class EngineThread:
    """Runs an EngineCore. `on_failure` is called on the event loop when the thread dies by an exception."""

    def __init__(self, core: EngineCore, on_failure: Callable[[BaseException], None]) -> None:
        self.core = core
        self._on_failure = on_failure
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._subscriptions: dict[str, Subscription] = {}
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def knows(self, rid: str) -> bool:
        return rid in self._subscriptions

    async def call(self, action: Callable[[EngineCore], T]) -> T:
        """Run `action` in the compute thread, between two passes; re-raises what it raises."""
        if not self.alive:
            raise EngineError("the engine's compute thread is not running")
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = action(self.core)
            except EngineError as error:
                self._post(_fail, future, error)
            except BaseException as error:
                self._post(_fail, future, EngineError(f"the engine failed: {error!r}"))
                raise
            else:
                self._post(_resolve, future, result)

        self._calls.put(run)
        return await future

    async def submit(self, sequence: Sequence, version: str | None = None) -> Subscription:
        """Queue a sequence, bound to a resident `version` or following the newest weights.

        Raises:
            EngineBusy: the line is full.
            EngineError: the version is not resident.
        """
        subscription = self._subscriptions[sequence.rid] = Subscription(sequence)
        try:
            await self.call(lambda core: core.submit([sequence], version))
        except BaseException:
            self.discard(subscription)
            raise
        return subscription

    async def abort(self, matches: Callable[[Sequence], bool]) -> None:
        """End matching sequences; their subscriptions get the last snapshot."""
        await self.call(lambda core: self._deliver(core.abort(matches)))

    async def pause(self, mode: str) -> None:
        await self.call(lambda core: self._deliver(core.pause(mode)))

    def discard(self, subscription: Subscription) -> None:
        """Forget a subscription that no request waits for any more; an unfinished sequence is aborted."""
        rid = subscription.sequence.rid
        self._subscriptions.pop(rid, None)
        if subscription.latest is None or subscription.latest.finish is None:
            self._calls.put(lambda: self._drop(rid))

    def _drop(self, rid: str) -> None:
        self.core.abort(lambda sequence: sequence.rid == rid)

    async def stop(self) -> None:
        self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- compute thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._take_calls():
                self._deliver(self.core.step())
        except BaseException as error:
            self._post(self._failed, error)
            raise

    def _take_calls(self) -> bool:
        """Carry out waiting calls; blocks while there is nothing to compute. False when asked to stop."""
        while True:
            try:
                call = self._calls.get(block=self.core.scheduler.idle)
            except queue.Empty:
                return True
            if call is None:
                return False
            call()

    def _deliver(self, sequences: list[Sequence]) -> None:
        if sequences:
            self._post(self._hand_out, [sequence.snapshot(self.core.current.name) for sequence in sequences])

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    # --- event loop ----------------------------------------------------------------------------------------------

    def _hand_out(self, snapshots: list[Sequence]) -> None:
        for snapshot in snapshots:
            subscription = self._subscriptions.get(snapshot.rid)
            if subscription is None:
                continue
            if snapshot.finish is not None:
                del self._subscriptions[snapshot.rid]
            subscription.latest = snapshot
            subscription.changed.set()

    def _failed(self, error: BaseException) -> None:
        for subscription in self._subscriptions.values():
            subscription.latest = None
            subscription.error = f"the engine failed: {error!r}"
            subscription.changed.set()
        self._subscriptions.clear()
        self._on_failure(error)


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: EngineError) -> None:
    if not future.done():
        future.set_exception(error)
