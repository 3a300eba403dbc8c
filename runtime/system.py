"""The actors of a run, wherever they live.

Invariant: after `stop` nothing that the system started is left: no task, no process, no socket. A part that
can't be kept alive makes `failed` return the reason; it never just disappears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from runtime.cell import InlineHost, StallWatch
from runtime.clock import Clock, RealClock
from runtime.control import ControlServer, Say
from runtime.errors import ActorFailed, ActorGone, ConfigError
from runtime.hosts import launch
from runtime.hosts.frames import PeersLost
from runtime.hosts.launch import Launched
from runtime.hosts.placer import PlacedHost, Placer, PlacerSpec
from runtime.hosts.process import ProcessHost
from runtime.logs.writer import SYSTEM_FAILED, host_log
from runtime.messaging.message import Envelope
from runtime.messaging.node import Node
from runtime.messaging.refs import Ref
from runtime.program import check_origin
from runtime.spec import MAIN, ActorSpec, HostSpec, WireSpec, check_name
from runtime.supervision import RestartPolicy
from runtime.waits import ActorStatus, TaskScope

__all__ = ["ActorSpec", "ActorSystem", "HostSpec", "PlacerSpec", "RestartPolicy", "run"]

T = TypeVar("T")


class _Routes:
    """The way from the main process to actors and askers in other hosts."""

    def __init__(self) -> None:
        self.hosts: dict[str, ProcessHost] = {}
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
    """Starts, restarts and stops actors and hosts. An async context manager.

    `hosts` gives environment and niceness of process hosts; a host that is only named in a spec gets the defaults.
    `placer` says how hosts are placed on other machines; without it they all are on this one.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        hosts: Sequence[HostSpec] = (),
        clock: Clock | None = None,
        log_level: str = "info",
        stall_after_s: float = 60.0,
        placer: PlacerSpec | None = None,
    ) -> None:
        check_origin()
        self.run_dir = run_dir.resolve()
        self.log_level = log_level
        clock = clock or RealClock()
        self.log = host_log(self.run_dir, MAIN, log_level, clock)
        self._stall_after_s = stall_after_s
        self._specs = {spec.name: spec for spec in hosts}
        self._later: set[str] = set()  # hosts that a run begins after its start
        self._joining: dict[str, str] = {}  # what `join` begins, actors and `host NAME`, and why it was given up
        self._routes = _Routes()
        self._node = Node(MAIN, self.run_dir, clock, self.log, self._routes)
        self._inline = InlineHost(self._node, self.give_up)
        self._control = ControlServer(self.run_dir, self.statuses, self.log)
        self._tasks = TaskScope(lambda name, error: self.give_up(name, f"{name} failed: {error!r}"))
        self._placer: Placer | None = None
        if placer is not None:
            self._placer = Placer(placer, self.run_dir, self.log, lambda reason: self.give_up("placer", reason))
        self._order: list[str] = []
        self._failure: str | None = None
        self._failed = asyncio.Event()
        self._running = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the control socket and start the stall watch. Raises ConfigError when the run is already running."""
        await self._control.start()
        self._tasks.spawn(StallWatch(self._inline, self._stall_after_s).run(), "stall watch")
        if self._placer is not None:
            self._placer.start()
        self._running = True

    def waits(self) -> list[str]:
        """What hosts wait for, where they wait for machines."""
        return self._placer.waits() if self._placer is not None else []

    async def spawn(self, *specs: ActorSpec, hosts: Sequence[HostSpec] = ()) -> None:
        """Start actors side by side; returns when every `on_start` has. They may ask each other while starting.

        `hosts` are of processes that a run begins later: one that finds no machine waits for it without end. Raises
        ActorFailed when an actor can't be started within its restart budget, ConfigError for a name in use.
        """
        if not self._running:
            raise ConfigError("the system is not running")
        self._specs.update({spec.name: spec for spec in hosts})
        self._later.update(spec.name for spec in hosts)
        wires = [(spec.host, spec.wire()) for spec in specs]
        for host, wire in wires:
            if wire.name in self._routes.places:
                raise ConfigError(f"there are two actors called {wire.name}")
            self._routes.places[wire.name] = host
            self._order.append(wire.name)
        started = [(self._inline if host == MAIN else self._host(host)).add(wire) for host, wire in wires]
        await asyncio.gather(*started)

    async def join(self, *specs: ActorSpec, hosts: Sequence[HostSpec] = ()) -> None:
        """`spawn` for a system that goes on without them: until all are up, `failed` returns for none of them.

        Raises like `spawn`, also for a part that was up and is given up before the others are. `remove` them then.
        """
        new = {spec.host for spec in specs} - {MAIN, *self._routes.hosts}
        names = [*(spec.name for spec in specs), *(f"host {host}" for host in new)]
        self._joining |= dict.fromkeys(names, "")
        await self.spawn(*specs, hosts=hosts)
        reasons = [reason for name in names if (reason := self._joining.pop(name))]
        if reasons:  # of one that was up before the others
            self._joining |= dict.fromkeys(names, "")
            raise ActorFailed("GaveUp", reasons[0])

    async def configure(self, *specs: ActorSpec) -> None:
        """Give actors that are there new configs (`Actor.on_config`); their later lives start with them, too.

        Raises ConfigError for an actor that is not there or lives in another host.
        """
        by_host: dict[str, list[WireSpec]] = {}
        for spec in specs:
            if self._routes.places.get(spec.name) != spec.host:
                raise ConfigError(f"there is no actor {spec.name} in host {spec.host}")
            by_host.setdefault(spec.host, []).append(spec.wire())
        hosts = self._routes.hosts
        await asyncio.gather(
            *((self._inline if host == MAIN else hosts[host]).configure(wires) for host, wires in by_host.items())
        )

    async def remove(self, names: Collection[str]) -> None:
        """Stop these actors side by side, and every child process that has none left: its name is free again."""
        places, hosts = self._routes.places, self._routes.hosts
        known = [name for name in self._order if name in names]
        of_hosts = {places[name] for name in known} - {MAIN}
        await asyncio.gather(self._inline.remove(known), *(hosts[host].remove(known) for host in of_hosts))
        for name in known:
            del places[name]
            self._order.remove(name)
        empty = [hosts.pop(host) for host in of_hosts - set(places.values())]
        await asyncio.gather(*(host.close() for host in empty))
        for name in (*known, *(f"host {host.name}" for host in empty)):
            self._joining.pop(name, None)

    def on_command(self, name: str, command: Callable[[bytes, Say], Awaitable[None]]) -> None:
        self._control.commands[name] = command

    def names(self) -> list[str]:
        return list(self._order)

    def ref(self, name: str, sender: str = "system") -> Ref:
        return Ref(self._node, sender, name)

    async def failed(self) -> str:
        await self._failed.wait()
        return self._failure or ""

    async def statuses(self) -> list[ActorStatus]:
        parts = await asyncio.gather(*(host.statuses() for host in self._routes.hosts.values()))
        by_name = {status.name: status for part in (self._inline.statuses(), *parts) for status in part}
        return [by_name[name] for name in self._order if name in by_name]

    def cpu_placed(self) -> dict[str, tuple[float, bool]]:
        """Of each placed process its processor seconds so far, as of its last heartbeat, and whether it is elsewhere.

        One that the cluster has placed on this machine is no child of this process, and not elsewhere.
        """
        return {name: (host.cpu_s, host.elsewhere) for name, host in self._routes.hosts.items() if host.placed}

    async def stop(self) -> None:
        """Stop all actors, the last spawned first; those of one kind (`desktop/*`) at once. Can be repeated."""
        if not self._running:
            return
        self._running = False
        kinds = [list(names) for _, names in groupby(reversed(self._order), key=lambda name: name.split("/")[0])]
        hosts = self._routes.hosts
        for names in kinds:
            await asyncio.gather(self._inline.remove(names), *(host.remove(names) for host in hosts.values()))
            for name in names:
                self._routes.places.pop(name, None)
                self._order.remove(name)
        await asyncio.gather(*(host.close() for host in hosts.values()))
        if self._placer is not None:
            await self._placer.close()
        await self._control.close()
        await self._tasks.close(5.0)
        try:
            await self._inline.close()
        finally:
            self.log.close()

    def give_up(self, name: str, reason: str) -> None:
        """A part can't be kept alive: `failed` returns the first such reason; of what joins, `join` raises it."""
        if name in self._joining:
            self._joining[name] = reason
            return
        self.log.emit(SYSTEM_FAILED, name=name, reason=reason)
        if self._failure is None:
            self._failure = reason
        self._failed.set()

    def route(self, envelope: Envelope) -> None:
        if envelope.kind in ("reply", "accepted", "error"):
            self._node.answer(envelope)
            return
        place = self._routes.places.get(envelope.to, MAIN)
        if place == MAIN:
            self._node.accept(envelope)
        else:
            self._routes.hosts[place].forward(envelope)

    def host_lost(self, host: str, names: Collection[str], reason: str) -> None:
        """Fail the asks to the actors of a lost host, in every process."""
        self._node.peers_lost(names, reason)
        for other in self._routes.hosts.values():
            if other.name != host:
                other.tell(PeersLost(names=list(names), reason=reason))

    def _host(self, name: str) -> ProcessHost:
        if name not in self._routes.hosts:
            check_name(name)
            spec = self._specs.get(name, HostSpec(name=name))
            self._routes.hosts[name] = ProcessHost(spec, self._node, self, self._launch, self._stall_after_s)
        return self._routes.hosts[name]

    def _launch(self, spec: HostSpec, first: bool) -> Launched:
        """Begin a life of a host, here or where it is placed."""
        if spec.place is None or self._placer is None:
            return launch.launch_here(spec, self.run_dir, self.log_level, self._stall_after_s)
        words = [
            *launch.arguments(spec, self.log_level, self._stall_after_s),
            f"--silent-limit-s={spec.silent_limit_s}",
            f"--home={self.run_dir}",
        ]
        first = first and spec.name not in self._later
        return PlacedHost(self._placer, spec, words, first=first)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on uvloop."""
    return uvloop.run(main)
