"""Actors in this very process.

Invariant: an actor is known here from `add` until `remove`; its mailbox takes messages before it has started.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from runtime.cell import Cell
from runtime.errors import ConfigError
from runtime.messaging.node import Node
from runtime.spec import WireSpec
from runtime.status import ActorStatus
from runtime.tasks import TaskScope
from runtime.waits import PendingWait, waits_now


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
        """Stop these actors, all at once, and forget them."""
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
        """Stop what is left, then the node."""
        await self.remove(list(self.cells))
        await self._scope.close(5.0)
        await self.node.close()
