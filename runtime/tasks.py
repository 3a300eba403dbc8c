"""Tasks with an owner.

Invariant: a task belongs to a scope, and its failure reaches the scope's owner. Closing the scope cancels and awaits
every task in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

OnFailure = Callable[[str, BaseException], None]


class TaskScope:
    """Owns tasks. `on_failure(name, error)` is called for a task that ends by an exception."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `coro` as a task of this scope."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._on_failure(task.get_name(), error)

    async def close(self, grace_s: float) -> list[str]:
        """Cancel and await all tasks; returns the names of those still running after `grace_s` seconds."""
        current = asyncio.current_task()
        end = asyncio.get_running_loop().time() + grace_s
        while tasks := [t for t in self._tasks if t is not current]:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return sorted(t.get_name() for t in tasks)
            for task in tasks:
                task.cancel()
            # A task may swallow one cancellation (a library's own timeout does); ask again.
            await asyncio.wait(tasks, timeout=min(left, 5.0))
        return []
