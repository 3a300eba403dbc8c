"""Processes of a sandbox, watched through their descriptors.

Invariant: a process is named by its pidfd, never by a number that the kernel may have given to another process. Waiting
for its end is an event of the loop and costs no thread.
"""

from __future__ import annotations

import asyncio
import os
import signal


class Watched:
    """A process of which the end is awaited."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._loop.add_reader(self._fd, self._on_end)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._fd)
        self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._ended.is_set()

    def kill(self) -> None:
        """SIGKILL; nothing when it has ended."""
        if self.alive:
            try:
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            except ProcessLookupError:
                return

    async def ended(self, timeout_s: float) -> None:
        """Wait for its end. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._ended.wait()

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            if self.alive:
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
