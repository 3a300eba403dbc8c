"""Lets requests to the engine, and none while it is drained.

Invariant: inside `closed()` no request is with the engine, and none is let to it before the block ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Counts requests; one part of the program at a time closes it."""

    def __init__(self) -> None:
        self.inside = 0  # requests with the engine
        self._open, self._empty = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._empty.set()
        self._closing = asyncio.Lock()

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Be inside, once the gate is open."""
        while not self._open.is_set():  # a request that was woken may find it closed again
            await self._open.wait()
        self.inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.inside -= 1
            if not self.inside:
                self._empty.set()

    @asynccontextmanager
    async def closed(self, timeout_s: float) -> AsyncIterator[None]:
        """Keep requests out; begins when those inside have left. Raises TimeoutError when they don't."""
        async with self._closing:
            self._open.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._empty.wait()
                yield
            finally:
                self._open.set()
