"""Hosts on other machines, seen from the main host: the placer process, and each life that it placed.

Invariant: a life that is over can't connect again, so the run talks to at most one life of a host. When the placer
process ends, what it placed ends with it, and the placer alone is started again: the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import ComputerRLError, ConfigError, HostLost
from runtime.hosts import frames
from runtime.hosts.door import MARK, Arrival, Door
from runtime.hosts.launch import Child, Launched
from runtime.logs.writer import HOST_WAITS, PLACER_LOST, PLACER_READY, ActorLog
from runtime.program import FAMILIES, NAMES, check_origin, passed
from runtime.spec import HostSpec
from runtime.supervision import Backoff
from runtime.waits import TaskScope

CLOSE_S = 20.0
SAY_EVERY_S = 15.0
AGAIN = Backoff(first_s=1.0, longest_s=30.0)


class PlacerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run has hosts on other machines."""

    cluster: str = "the cluster"  # its name in messages, such as Ray at HOST:PORT
    module: str = "runtime.hosts.ray"  # the placer process: `python -P -m MODULE`
    arguments: tuple[str, ...] = ()
    passes: tuple[str, ...] = ("RAY_",)  # how names of variables begin that it gets on top of what hosts get
    wait_s: float = 600.0  # for the first machine of each host


class Placer:
    """Places hosts by a process of its own, and lets them in. `give_up` is called with why no host can be placed."""

    def __init__(self, spec: PlacerSpec, run_dir: Path, log: ActorLog, give_up: Callable[[str], None]) -> None:
        self.spec = spec
        self.door = Door()
        self.machines: list[frames.Machine] = []
        self._run_dir, self._log, self._give_up = run_dir, log, give_up
        self._mark = secrets.token_hex(8)
        self._link: frames.Link[frames.FromPlacer | frames.ToPlacer] | None = None
        self._up = asyncio.Event()  # while the placer process takes orders
        self._cause = ""  # why it is not up, once that is known
        self._lives: dict[str, PlacedHost] = {}
        self._scope = TaskScope(lambda name, error: give_up(f"{name} failed: {error!r}"))
        self._stop = asyncio.Event()
        self._live: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process in the background; hosts wait for it."""
        (self._run_dir / MARK).write_text(self._mark)
        self._live = self._scope.spawn(self._keep(), "placer")
        self._scope.spawn(self._say(), "what hosts wait for")

    async def close(self) -> None:
        """Shut the door and end the process, and with it all that it placed. Can be repeated."""
        self._stop.set()
        if self._link is not None:
            self._link.abort()
        if self._live is not None:
            await asyncio.wait({self._live}, timeout=CLOSE_S + 2.0)
        await self._scope.close(5.0)
        await self.door.close()

    def waits(self) -> list[str]:
        """A line for each thing that hosts wait for, with what is there; nothing when all have their machines."""
        lives = [life for life in self._lives.values() if not life.placed.done()]
        if not self._up.is_set():
            silent = f"{self.spec.cluster} has not answered" + (f": {self._cause}" if self._cause else "")
            return [] if self._stop.is_set() else [silent]
        there = "; ".join(f"{machine.name} has {_free(machine)}" for machine in self.machines) or "no machine is there"
        by_need: dict[str, list[str]] = {}
        for life in lives:
            by_need.setdefault(frames.wanted(life.spec.place or {}), []).append(life.spec.name)
        return [f"{', '.join(names)} wait for a machine with {need} free: {there}" for need, names in by_need.items()]

    async def order(self, life: PlacedHost) -> Arrival:
        """Have `life` started, once the placer takes orders."""
        await self._up.wait()
        spec = life.spec
        guest = life.guest = self.door.expect(spec.name, self._mark)
        self._lives[guest.ticket.life] = life
        self._tell(
            frames.PlaceHost(
                life=guest.ticket.life,
                run=self._run_dir.name,
                arguments=life.arguments,
                ticket=msgspec.msgpack.encode(guest.ticket),
                env={name: os.environ[name] for name in spec.passes if name in os.environ} | spec.env,
                names=list(NAMES),
                families=list(FAMILIES),
                root=check_origin().root,
                resources=spec.place or {},
            )
        )
        return guest

    def kill(self, life: PlacedHost) -> None:
        if life.guest is not None and not life.ended.is_set():
            self._tell(frames.Kill(life=life.guest.ticket.life))

    def forget(self, life: PlacedHost) -> None:
        if life.guest is not None and life.ended.is_set():
            self._lives.pop(life.guest.ticket.life, None)

    def _tell(self, frame: frames.ToPlacer) -> None:
        if self._link is not None:
            with contextlib.suppress(HostLost):  # `_keep` is about to end all lives
                self._link.write(frame)

    async def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            self._cause = await self._one_life() or self._cause
            for life in list(self._lives.values()):
                life.end(None, "the placer was lost")
            self._lives.clear()
            if self._stop.is_set():
                return
            failures = 1 if time.monotonic() - began > AGAIN.longest_s else failures + 1
            delay_s = AGAIN.delay_s(failures)
            self._log.emit(PLACER_LOST, cause=self._cause, delay_s=delay_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stop.wait()

    async def _one_life(self) -> str:
        env = {k: v for k, v in os.environ.items() if k.startswith(self.spec.passes)} | passed(os.environ)
        output_lines: list[str] = []
        try:
            child = Child(self.spec.module, self.spec.arguments, env)
        except OSError as error:
            return f"the placer can't be started: {error}"
        output = self._scope.spawn(child.output(lambda line: _keep_last(output_lines, line)), "output of the placer")
        try:
            link: frames.Link[frames.FromPlacer | frames.ToPlacer] = await child.link(frames.FromPlacer)
            try:
                self._link = link
                await child.until_exit_or(self._read(link))
            finally:
                self._link = None
                self._up.clear()
                await link.close()
            await child.ended(CLOSE_S)
        except ComputerRLError as error:
            return str(error)
        finally:
            code = await child.reap()
            await asyncio.wait({output}, timeout=1.0)
            output.cancel()
        return f"the placer ended with exit code {code}: {' | '.join(output_lines[-3:])}"

    async def _read(self, link: frames.Link[frames.FromPlacer | frames.ToPlacer]) -> None:
        while (frame := await link.receive()) is not None:
            match frame:
                case frames.Ready():
                    await self._open(frame.address)
                case frames.There():
                    self.machines = frame.machines
                case frames.Unusable():
                    self._give_up(frame.cause)
                    self._stop.set()
                    return
                case frames.HostPlaced() | frames.HostSaid() | frames.Ended() if (
                    life := self._lives.get(frame.life)
                ) is not None:
                    self._heard(life, frame)

    def _heard(self, life: PlacedHost, frame: frames.HostPlaced | frames.HostSaid | frames.Ended) -> None:
        if isinstance(frame, frames.Ended):
            life.end(frame.code, frame.cause, sure=frame.sure)
            del self._lives[frame.life]
        elif isinstance(frame, frames.HostSaid):
            if not life.lines.full():
                life.lines.put_nowait(frame.line)
        elif not life.placed.done():
            life.placed.set_result(frame)

    async def _open(self, address: str) -> None:
        if not self.door.address:
            await self.door.open(address)
        self._log.emit(PLACER_READY, address=address, door=self.door.address)
        self._up.set()

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY_S)
            for line in self.waits():
                self._log.emit(HOST_WAITS, waits=line)


def _free(machine: frames.Machine) -> str:
    parts = [f"{name} {machine.free.get(name, 0.0):g} of {amount:g}" for name, amount in sorted(machine.total.items())]
    return ", ".join(parts) or "nothing"


def _keep_last(lines: list[str], line: str) -> None:
    lines.append(line)
    del lines[:-20]


GONE_S = 3.0  # for the word that a host has ended whose link has closed


class PlacedHost(Launched):
    """One life of a host on a machine of the cluster's choice, as `launch.Child` is one on this machine."""

    def __init__(self, placer: Placer, spec: HostSpec, arguments: list[str], *, first: bool) -> None:
        self.spec, self.arguments = spec, arguments
        self.guest: Arrival | None = None  # once it was ordered
        self.placed: asyncio.Future[frames.HostPlaced] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()  # for sure
        self.over = asyncio.Event()  # ended, or given up
        self.code: int | None = None
        self.cause = ""
        self.lines: asyncio.Queue[str | None] = asyncio.Queue(1000)
        self._placer, self._first = placer, first
        self._closed = False  # the link was closed by the other side: the host has ended

    def end(self, code: int | None, cause: str, *, sure: bool = True) -> None:
        self.code, self.cause = code, cause
        self.placed.cancel()
        if self.lines.full():
            self.lines.get_nowait()
        self.lines.put_nowait(None)
        if sure:
            self.ended.set()
        self.over.set()

    async def link(self, frame_type: object) -> frames.Link[Any]:
        """The link, once it has been placed and has come in.

        Raises ConfigError where no machine was found for its first life within `wait_s`, else HostLost.
        """
        try:
            async with asyncio.timeout(self._placer.spec.wait_s if self._first else None):
                guest = await self._placer.order(self)
                await asyncio.wait([self.placed])
        except TimeoutError:
            waits = "; ".join(self._placer.waits())
            raise ConfigError(f"cluster.wait_s: {self._placer.spec.wait_s:g} s are over, and {waits}") from None
        if self.placed.cancelled():
            raise HostLost(f"host {self.spec.name} can't be placed: {self.cause}")
        placed = self.placed.result()
        self.pid, self.machine = placed.pid, placed.machine
        ended = asyncio.ensure_future(self.ended.wait())
        try:
            limit = self.spec.start_timeout_s
            either: set[asyncio.Future[Any]] = {guest.came, ended}
            await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if not guest.came.done():
            what = f"ended on {self.machine}: {self.cause}" if self.ended.is_set() else f"did not come in {limit:g} s"
            raise HostLost(f"host {self.spec.name} {what}")
        return frames.Link(*guest.came.result(), frame_type)

    async def output(self, line: Callable[[str], None]) -> None:
        while (text := await self.lines.get()) is not None:
            line(text)

    @property
    def exited(self) -> asyncio.Event:
        return self.over

    async def until_exit_or(self, reading: Coroutine[None, None, None]) -> None:
        """As `Launched.until_exit_or`; of a machine that can't be reached `reap` waits for its own limit then."""

        async def to_the_end() -> None:
            await reading
            self._closed = True

        await super().until_exit_or(to_the_end())

    def kill(self) -> None:
        if self.guest is not None:
            self._placer.kill(self)
            self.over.set()

    async def reap(self, stopped_by: float) -> int | None:
        """Let this life in no more and end it; waits for the word that it has, or until it has stopped by itself."""
        if self.guest is None:
            return None
        self.kill()
        came = self.guest.came.done()
        self._placer.door.forget(self.guest)
        left_s = max(GONE_S, stopped_by - time.monotonic()) if came and not self._closed else GONE_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self.ended.wait()
        self._placer.forget(self)
        return self.code
