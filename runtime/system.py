"""The actors of a run, wherever they live.

Invariant: after `stop` nothing that the system started is left: no task, no process, no socket. A part that
can't be kept alive makes `failed` return the reason; it never just disappears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from runtime.clock import Clock, RealClock
from runtime.envelope import Envelope
from runtime.errors import ActorGone, ConfigError
from runtime.hosts.inline import InlineHost
from runtime.logs import ActorLog
from runtime.node import Node
from runtime.refs import Ref
from runtime.spec import MAIN, ActorSpec, HostSpec
from runtime.status import ActorStatus
from runtime.supervision import RestartPolicy

__all__ = ["ActorSpec", "ActorSystem", "HostSpec", "RestartPolicy", "run"]

T = TypeVar("T")


class _Routes:
    """The way from the main process to actors and askers in other hosts."""

    def __init__(self) -> None:
        self.hosts: dict[str, Any] = {}
        self.places: dict[str, str] = {}  # actor -> host

    async def send(self, envelope: Envelope) -> None:
        host = self.hosts.get(self.places.get(envelope.to, ""))
        if host is None:
            raise ActorGone(f"there is no actor {envelope.to}")
        await host.send(envelope)

    def answer(self, envelope: Envelope) -> bool:
        host = self.hosts.get(envelope.reply_to)
        return host is not None and host.answer(envelope)


class ActorSystem:
    """Starts, restarts and stops actors and hosts. An async context manager."""

    def __init__(
        self,
        run_dir: Path,
        *,
        hosts: Sequence[HostSpec] = (),
        clock: Clock | None = None,
        log_level: str = "info",
        stall_after_s: float = 60.0,
    ) -> None:
        self.run_dir = run_dir
        self.log_level = log_level
        self.log = ActorLog(run_dir, f"host/{MAIN}", log_level)
        self._stall_after_s = stall_after_s
        self._specs = {spec.name: spec for spec in hosts}
        self._routes = _Routes()
        self._node = Node(MAIN, run_dir, clock or RealClock(), self.log, self._routes)
        self._inline = InlineHost(self._node, log_level, self._give_up)
        self._order: list[str] = []
        self._failure: str | None = None
        self._failed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make the system ready for `spawn`."""

    async def spawn(self, *specs: ActorSpec) -> None:
        """Start actors side by side; returns when every `on_start` has. They may ask each other while starting.

        Raises ActorFailed when one can't be started within its restart budget, ConfigError for a name in use.
        """
        started = []
        for spec in specs:
            if spec.name in self._routes.places:
                raise ConfigError(f"there are two actors called {spec.name}")
            self._routes.places[spec.name] = spec.host
            self._order.append(spec.name)
            started.append(self._inline.add(spec.wire()))
        await asyncio.gather(*started)

    def ref(self, name: str, sender: str = "system") -> Ref:
        """A way to ask an actor from outside any actor."""
        return Ref(self._node, sender, name)

    async def failed(self) -> str:
        """Wait until a part can't be kept alive; returns the reason."""
        await self._failed.wait()
        return self._failure or ""

    async def statuses(self) -> list[ActorStatus]:
        """What every actor is doing, in the order of spawning."""
        found = {status.name: status for status in await self._inline.statuses()}
        return [found[name] for name in self._order if name in found]

    async def stop(self) -> None:
        """Stop all actors, the last spawned first; those of one kind (`desktop/*`) at once. Can be repeated."""
        kinds = [list(names) for _, names in groupby(reversed(self._order), key=lambda name: name.split("/")[0])]
        for names in kinds:
            await self._inline.remove(names)
            for name in names:
                self._routes.places.pop(name, None)
                self._order.remove(name)
        await self._inline.close()
        self.log.close()

    def _give_up(self, name: str, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self._failed.set()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop."""
    return uvloop.run(main)
