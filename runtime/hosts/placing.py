"""What the main host and its placer process say to each other, and the placer's loop.

Invariant: a life that was ordered is answered by exactly one `Ended`, after at most one `HostPlaced`. The placer holds
no state that outlives it: when it ends, all that it placed ends with it.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from runtime.errors import ComputerRLError, ConfigError, HostLost
from runtime.messaging.message import Message, Value
from runtime.messaging.transport import Link
from runtime.signals import die_with
from runtime.tasks import TaskScope

SHOW_EVERY_S = 3.0


class Machine(Value):
    """One machine of the cluster: what it has, and what of it is free."""

    name: str
    total: dict[str, float]
    free: dict[str, float]


class PlaceHost(Message):
    """Main: start this life on a machine that has `resources` free."""

    life: str
    run: str  # the run's name, that of its folder on the machine, too
    arguments: list[str]  # of runtime.hosts.child
    ticket: bytes  # that the host reads from its standard input
    env: dict[str, str]
    names: list[str]  # what of the machine's own environment the host gets, by name
    families: list[str]  # and by how names begin
    root: str  # this program's folder, for a machine that has the same one there
    resources: dict[str, float]


class Kill(Message):
    """Main: end this life, wherever it is."""

    life: str


class Ready(Message):
    """Placer: the cluster answers, and knows this machine by `address`."""

    address: str


class There(Message):
    """Placer: these machines are there now."""

    machines: list[Machine]


class HostPlaced(Message):
    """Placer: the life has begun on this machine."""

    life: str
    machine: str
    pid: int


class HostSaid(Message):
    """Placer: the host wrote this to its standard output."""

    life: str
    line: str


class Ended(Message):
    """Placer: the life is over. `code` is its exit status; None where the machine can't be asked.

    `sure` is False where the host may still run on a machine that can't be reached.
    """

    life: str
    code: int | None
    cause: str
    sure: bool


class Unusable(Message):
    """Placer: no restart will help."""

    cause: str


FromPlacer = Ready | There | HostPlaced | HostSaid | Ended | Unusable
ToPlacer = PlaceHost | Kill


class HostUnreachedError(HostLost):
    """The life was given up, and its host may still run on a machine that can't be reached."""


class PlacingEngine(Protocol):
    """What places hosts: Ray, or a test's stand-in."""

    async def connect(self) -> str:
        """The address by which the cluster knows this machine. Raises ConfigError where no restart will help."""
        ...

    async def place(self, order: PlaceHost, placed: Callable[[str, int], None], said: Callable[[str], None]) -> int:
        """Start the life and see it to its end; returns its exit status. Raises ComputerRLError where it is lost.

        HostUnreachedError is for a host that may still run. Cancelled before it has called `placed`, it leaves nothing.
        """
        ...

    async def kill(self, life: str) -> None:
        """End the life; `place` returns or raises then."""
        ...

    async def machines(self) -> list[Machine]:
        """What is there."""
        ...


class _Serving:
    """The placer's side of the link."""

    def __init__(self, engine: PlacingEngine, link: Link[FromPlacer | ToPlacer]) -> None:
        self._engine, self._link = engine, link
        self._failed: BaseException | None = None
        self._unplaced: dict[str, asyncio.Task[None]] = {}
        self._scope = TaskScope(self._job_failed)

    async def run(self) -> None:
        try:
            address = await self._engine.connect()
        except ConfigError as error:
            await self._link.send(Unusable(cause=str(error)), 10.0)
            await self._link.receive()  # main ends this process
            return
        self._link.write(Ready(address=address))
        self._scope.spawn(self._show(), "machines")
        while (frame := await self._link.receive()) is not None:
            match frame:
                case PlaceHost():
                    self._unplaced[frame.life] = self._scope.spawn(self._place(frame), f"place {frame.life}")
                case Kill() if (placing := self._unplaced.pop(frame.life, None)) is not None:
                    placing.cancel()
                case Kill():
                    self._scope.spawn(self._engine.kill(frame.life), f"kill {frame.life}")
        await self._scope.close(5.0)
        if self._failed is not None:
            raise self._failed

    async def _place(self, order: PlaceHost) -> None:
        def placed(machine: str, pid: int) -> None:
            self._unplaced.pop(order.life, None)
            self._link.write(HostPlaced(life=order.life, machine=machine, pid=pid))

        def said(line: str) -> None:
            self._link.write(HostSaid(life=order.life, line=line))

        code, cause, sure = None, "", True
        try:
            code = await self._engine.place(order, placed, said)
        except ComputerRLError as error:
            cause, sure = str(error), not isinstance(error, HostUnreachedError)
        except asyncio.CancelledError:
            cause = "it was not wanted any more"
        self._unplaced.pop(order.life, None)
        self._link.write(Ended(life=order.life, code=code, cause=cause, sure=sure))

    async def _show(self) -> None:
        shown: list[Machine] | None = None
        while True:
            machines = await self._engine.machines()
            if machines != shown:
                self._link.write(There(machines=machines))
            shown = machines
            await asyncio.sleep(SHOW_EVERY_S)

    def _job_failed(self, _name: str, error: BaseException) -> None:
        self._failed = error
        self._link.abort()


def wanted(resources: Mapping[str, float]) -> str:
    """`CPU 2, desktops 125`."""
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(resources.items())) or "nothing"


def serve(parser: argparse.ArgumentParser, engine: Callable[[argparse.Namespace], PlacingEngine]) -> None:
    """A placer process's main: reads its arguments, then serves the link until main's end of it closes."""
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args()
    die_with(args.parent)

    async def run() -> None:
        sock = socket.socket(fileno=args.fd)
        sock.set_inheritable(False)
        link: Link[FromPlacer | ToPlacer] = await Link.of_socket(sock, ToPlacer)
        try:
            await _Serving(engine(args), link).run()
        finally:
            await link.close()

    asyncio.run(run())
