"""Frames between this program's processes, and what hosts and the placer say besides envelopes.

Invariant: a frame is a 4-byte big-endian length and a MessagePack value of a known type. Both sides refuse a frame
longer than `MAX_FRAME_BYTES`. What a slow peer has not read is bounded, and beyond the bound the link closes. A child's
first frame is `Hello`, and no actor starts before the main host has checked it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from runtime.errors import HostLost, ProtocolError
from runtime.messaging.message import Envelope, Message, Value, encode
from runtime.spec import WireSpec
from runtime.waits import ActorStatus

MAX_FRAME_BYTES = 64 << 20
MAX_UNSENT_BYTES = 256 << 20
CLOSE_S = 5.0

F = TypeVar("F")


class Link(Generic[F]):
    """One connection that carries frames of type `F` (a tagged union)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame_type: object) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(frame_type)

    @classmethod
    async def of_socket(cls, sock: socket.socket, frame_type: object) -> Link[F]:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(reader, writer, frame_type)

    async def receive(self) -> F | None:
        """The next frame, None at the end of the stream. Idle links wait here.

        Raises ProtocolError, and HostLost where the peer's machine can't be reached: that is not the peer's end.
        """
        try:
            head = await self._reader.readexactly(4)
            size = int.from_bytes(head, "big")
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes; {MAX_FRAME_BYTES} is the most")
            frame: F = self._decoder.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except OSError as error:
            raise HostLost(f"the link broke: {error}") from error
        except msgspec.DecodeError as error:
            raise ProtocolError(f"a frame that is none of ours: {error}") from error
        return frame

    def write(self, frame: F) -> None:
        """Queue `frame` without waiting. Raises HostLost when the peer is gone or has stopped reading."""
        body = encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(body)} bytes; {MAX_FRAME_BYTES} is the most")
        if self._writer.is_closing():
            raise HostLost("the link is closed")
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._writer.transport.abort()
            raise HostLost(f"the peer left {MAX_UNSENT_BYTES} bytes unread")
        self._writer.writelines((len(body).to_bytes(4, "big"), body))

    async def send(self, frame: F, timeout_s: float) -> None:
        """Queue `frame` and wait until the peer keeps up again, at most `timeout_s`. Raises HostLost."""
        self.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
        except TimeoutError as error:
            raise HostLost(f"the peer did not read for {timeout_s:.3g} s") from error
        except OSError as error:
            raise HostLost(f"the link broke: {error}") from error

    def abort(self) -> None:
        """Close at once, without waiting: `receive` returns None then."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()


class Hello(Message):
    """Child: this is me, my code, the boot of my machine (`program.boot_id`), and whether I see the run's folder."""

    name: str
    pid: int
    root: str
    build: str
    boot: str
    sees_run: bool


class Start(Message):
    """Main: run these actors too."""

    specs: list[WireSpec]


class Started(Message):
    """Child: `on_start` has ended well."""

    name: str


class GaveUp(Message):
    """Child: an actor can't be kept alive."""

    name: str
    reason: str


class StopActors(Message):
    """Main: stop these actors, then answer `CarriedOut` with the same id."""

    id: int
    names: list[str]


class Configure(Message):
    """Main: give these actors their new configs, then answer `CarriedOut` with the same id."""

    id: int
    specs: list[WireSpec]


class CarriedOut(Message):
    """Child: the order with this id is."""

    id: int


class Beat(Message):
    """Main: does your loop turn? Answer `Beaten` with the same id."""

    id: int


class Beaten(Message):
    """Child: it does, and this is what it costs.

    `clock` is what the child's own monotonic clock says, for finding out how far it is from the run's.
    `cpu_s` are the seconds of processor time of this process since its start, and of those below it where its spec says
    so; `machine_cpu_s` are those of the whole
    machine since its boot. `lag_s` is how late the loop was at the latest since the last beat.
    """

    id: int
    clock: float
    cpu_s: float
    machine_cpu_s: float
    lag_s: float


class SetClock(Message):
    """Main: your own clock is `offset_s` seconds behind the run's, whose wall time is `wall_s` ahead of it."""

    offset_s: float
    wall_s: float


class AskStatus(Message):
    """Main: what are your actors doing?"""

    id: int


class Statuses(Message):
    """Child: this."""

    id: int
    actors: list[ActorStatus]


class PeersLost(Message):
    """Main: another host is gone with these actors; asks to them fail now."""

    names: list[str]
    reason: str


class StopHost(Message):
    """Main: stop everything and exit."""


FromChild = Envelope | Hello | Started | GaveUp | CarriedOut | Beaten | Statuses
FromMain = Envelope | Start | StopActors | Configure | Beat | SetClock | AskStatus | PeersLost | StopHost


class Machine(Value):
    """One machine of the cluster: its resources, and those that are free."""

    name: str
    total: dict[str, float]
    free: dict[str, float]


def wanted(resources: Mapping[str, float]) -> str:
    """`CPU 2, desktops 125`."""
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(resources.items())) or "nothing"


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
