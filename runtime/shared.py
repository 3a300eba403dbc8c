"""Objects that the actors of one host share.

Invariant: one object per key, closed exactly once when the host stops, in the reverse order of making.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from runtime.errors import ProtocolError
from runtime.waits import waiting

MAKE_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 80.0


class Shared:
    """The shared objects of one host."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._closed = False

    async def get(self, who: str, key: str, factory: Callable[[], Awaitable[Any]]) -> Any:
        """The object under `key`, made by `factory` if there is none."""
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
