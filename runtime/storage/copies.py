"""Copies of the main host's folders on another machine, with the weights that they hold.

Invariant: a copy is whole and is what its digests say. At most `COPIES` stay: those that were asked for last.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from pathlib import Path

from runtime.hosts.ticket import HostTicket
from runtime.storage.far_store import fetched

COPIES = 4


class Copies:
    """The copies of one host, below `folder`."""

    def __init__(self, ticket: HostTicket, folder: Path) -> None:
        self._ticket, self._folder = ticket, folder
        self._there: OrderedDict[str, Path] = OrderedDict()  # by the main host's path, the latest asked for last
        self._turn = asyncio.Lock()

    async def of(self, path: str, *, nested: bool = False) -> Path:
        """The copy of `path`, which is made once: such a folder never changes. Raises StoreError."""
        async with self._turn:
            if path not in self._there:
                self._there[path] = await asyncio.to_thread(
                    fetched, self._ticket, path, self._folder, weights=True, nested=nested
                )
            self._there.move_to_end(path)
            if len(self._there) > COPIES:
                _, oldest = self._there.popitem(last=False)
                if oldest not in self._there.values():
                    await asyncio.to_thread(shutil.rmtree, oldest)
            return self._there[path]

    async def close(self) -> None:
        """Remove them."""
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
