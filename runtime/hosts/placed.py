"""One life of a host on another machine.

Invariant: `reap` returns when the life has ended, or must have ended by itself, and can't come in any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from runtime.errors import ConfigError, HostLost, StoreError
from runtime.hosts.launch import until_exit_or
from runtime.hosts.placer import Life, Placer
from runtime.messaging.transport import Link
from runtime.spec import HostSpec
from runtime.storage.bulk import Bulk

GONE_S = 3.0  # for the word that a host has ended whose link has closed


class PlacedHost:
    """One life of a host on a machine of the cluster's choice, as `launch.Child` is one on this machine."""

    def __init__(self, placer: Placer, spec: HostSpec, arguments: list[str], bulk: Bulk, *, first: bool) -> None:
        self.pid, self.machine = 0, ""
        self._placer, self._spec, self._arguments, self._bulk = placer, spec, arguments, bulk
        self._first = first
        self._life: Life | None = None
        self._ordered = asyncio.Event()
        self._closed = False  # the link was closed by the other side: the host has ended

    async def link(self, frame_type: object) -> Link[Any]:
        """The link, once it has been placed and has come in.

        Raises ConfigError where no machine was found for its first life within `wait_s`, else HostLost.
        """
        try:
            async with asyncio.timeout(self._placer.spec.wait_s if self._first else None):
                life = self._life = await self._placer.order(self._spec, self._arguments, self._bulk.serve)
                self._ordered.set()
                await asyncio.wait([life.placed])
        except TimeoutError:
            found = "; ".join(self._placer.waits())
            raise ConfigError(f"cluster.wait_s: {self._placer.spec.wait_s:g} s are over, and {found}") from None
        if life.placed.cancelled():
            raise HostLost(f"host {self._spec.name} can't be placed: {life.cause}")
        placed = life.placed.result()
        self.pid, self.machine = placed.pid, placed.machine
        ended = asyncio.ensure_future(life.ended.wait())
        try:
            limit = self._spec.start_timeout_s
            either: set[asyncio.Future[Any]] = {life.guest.came, ended}
            await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not life.guest.came.done():
            what = f"ended on {self.machine}: {life.cause}" if life.ended.is_set() else f"did not come in {limit:g} s"
            raise HostLost(f"host {self._spec.name} {what}")
        return Link(*life.guest.came.result(), frame_type)

    async def output(self, line: Callable[[str], None]) -> None:
        """Pass on what it says; ends when it does."""
        await self._ordered.wait()
        assert self._life is not None
        while (said := await self._life.lines.get()) is not None:
            line(said)

    async def until_exit_or(self, reading: Coroutine[None, None, None]) -> None:
        """Run `reading` until it ends, or until shortly after the host's exit or the order to end it.

        Of a machine that can't be reached no word comes that it has ended: `reap` then waits for its own limit.
        """
        assert self._life is not None

        async def to_the_end() -> None:
            await reading
            self._closed = True

        await until_exit_or(self._life.over, to_the_end())

    def kill(self) -> None:
        """Have it ended where it is."""
        if self._life is not None:
            self._placer.kill(self._life)
            self._life.over.set()

    async def reap(self, stopped_by: float) -> int | None:
        """Let this life in no more and end it; waits for the word that it has, or until it has stopped by itself."""
        if self._life is None:
            return None
        self.kill()
        came = self._life.guest.came.done()
        await self._placer.door.forget(self._life.guest)
        with contextlib.suppress(StoreError):  # what this life has flushed is safe, and nothing else was promised
            await self._bulk.close()
        left_s = max(GONE_S, stopped_by - time.monotonic()) if came and not self._closed else GONE_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._life.ended.wait()
        await self._placer.forget(self._life)
        return self._life.code
