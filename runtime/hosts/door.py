"""Where hosts on other machines come in: one TCP port.

Invariant: a connection counts from the moment it is accepted, before TLS, until it has proved that it holds the ticket
of a life that is waited for. It has `KNOCK_S` for that. There are never more than `MAX_KNOCKING` such connections, nor
more than `MAX_OF_ADDRESS` of one address: the oldest makes room for the next. A life's frames are let in once; what is
over is let in never again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hmac
import os
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection

import msgspec

from runtime.errors import ConfigError, HostLost
from runtime.hosts.ticket import KNOCK_S, MAX_KNOCK_BYTES, NONCE_BYTES, HostTicket, Knock, Way, keep_alive, prove
from runtime.urls import is_loopback

MAX_KNOCKING = 64  # connections that have not proved anything yet
MAX_OF_ADDRESS = 48  # of them
MAX_BULK = 4  # bulk connections of one life
AGAIN_S = 0.2  # after the system gave no descriptor for a connection

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_Knocking = dict[asyncio.Task[None], str]  # the address of each, the oldest first


class Arrival:
    """One life that may come in. `came` gets the streams of its frames, or HostLost once it may no more."""

    def __init__(self, ticket: HostTicket, serve_bulk: Serve | None) -> None:
        self.ticket = ticket
        self.came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()
        self.serve_bulk = serve_bulk
        self.bulk: set[asyncio.Task[None]] = set()


class Door:
    """The main host's side of all hosts elsewhere."""

    def __init__(self) -> None:
        self.address = ""
        self.refused = 0
        self._certificate = ""
        self._guests: dict[str, Arrival] = {}
        self._context: ssl.SSLContext | None = None
        self._knocking: _Knocking = {}
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int = 0) -> None:
        """Listen at `host`, with TLS where it is not a loopback address. Raises ConfigError."""
        if not is_loopback(host):
            self._certificate, self._context = _certified()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=MAX_KNOCKING)
        except OSError as error:
            raise ConfigError(f"can't listen at {host}:{port} for hosts on other machines: {error}") from error
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listener), name="door")
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def expect(self, name: str, serve_bulk: Serve | None = None) -> Arrival:
        """A fresh life of host `name` that may come in; `serve_bulk` is called with each of its bulk connections."""
        life, key = secrets.token_hex(8), secrets.token_bytes(32)
        guest = self._guests[life] = Arrival(HostTicket(self.address, name, life, key, self._certificate), serve_bulk)
        return guest

    async def forget(self, guest: Arrival) -> None:
        """Let this life in no more, and end its bulk connections."""
        self._guests.pop(guest.ticket.life, None)
        if not guest.came.done():
            guest.came.set_exception(HostLost(f"host {guest.ticket.name} did not come"))
            guest.came.exception()
        await _end(guest.bulk)

    async def close(self) -> None:
        """Listen no more, and drop all that has come by bulk or not come in yet."""
        if self._accepting is not None:
            await _end([self._accepting])
        if self._listener is not None:
            self._listener.close()
        await _end(list(self._knocking))
        await asyncio.gather(*(self.forget(guest) for guest in list(self._guests.values())))

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections one by one, each once there is room for it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the other side is gone already
                await asyncio.sleep(AGAIN_S)
                continue
            if (oldest := in_the_way(self._knocking, peer[0])) is not None:
                await _end([oldest])
            task = asyncio.create_task(self._knocked(sock), name=f"knock of {peer[0]}")
            self._knocking[task] = peer[0]
            await asyncio.sleep(0)  # a task that has not begun when it is cancelled would close nothing

    async def _knocked(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        came: tuple[Arrival, Way] | None = None
        streams: Streams | None = None
        try:
            async with asyncio.timeout(KNOCK_S):
                streams = await _streams(sock, self._context)
                came = await self._checked(*streams)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError):
            came = None
        finally:
            self._knocking.pop(task, None)
            if came is None:
                self.refused += 1
                if streams is None:
                    sock.close()
                else:
                    streams[1].transport.abort()
        if came is not None and came[1] == "bulk":
            assert streams is not None
            await self._bulk(came[0], task, *streams)

    async def _checked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Arrival, Way] | None:
        """Who has proved itself, and what for; the streams of frames are handed over. None: not one of ours."""
        ours = secrets.token_bytes(NONCE_BYTES)
        writer.write(ours)
        size = int.from_bytes(await reader.readexactly(2), "big")
        if size > MAX_KNOCK_BYTES:
            return None
        came = msgspec.msgpack.decode(await reader.readexactly(size), type=Knock)
        guest = self._guests.get(came.life)
        if guest is None or len(came.nonce) != NONCE_BYTES:
            return None
        nonces = ours + came.nonce
        wanted = prove(guest.ticket, "host", came.way, nonces)
        if not hmac.compare_digest(wanted, came.proof) or came.name != guest.ticket.name:
            return None
        frames = came.way == "frames"
        if guest.came.done() if frames else (guest.serve_bulk is None or len(guest.bulk) >= MAX_BULK):
            return None
        writer.write(prove(guest.ticket, "door", came.way, nonces))
        keep_alive(writer.get_extra_info("socket"))
        if frames:
            guest.came.set_result((reader, writer))
        return guest, came.way

    async def _bulk(
        self, guest: Arrival, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        serve = guest.serve_bulk
        assert serve is not None
        guest.bulk.add(task)
        try:
            # The other side may go at any moment, and its machine may be cut off.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, HostLost):
                await serve(reader, writer)
        finally:
            guest.bulk.discard(task)
            writer.transport.abort()


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def in_the_way(knocking: _Knocking, address: str) -> asyncio.Task[None] | None:
    """The connection that has to go before another of `address` may knock; None where there is room. Pure."""
    own = [task for task, whose in knocking.items() if whose == address]
    if len(own) >= MAX_OF_ADDRESS:
        return own[0]
    return next(iter(knocking)) if len(knocking) >= MAX_KNOCKING else None


async def _streams(sock: socket.socket, context: ssl.SSLContext | None) -> Streams:
    """The streams over an accepted connection, after TLS where there is a context. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    limit_s = None if context is None else KNOCK_S
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=context, ssl_handshake_timeout=limit_s
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _certified() -> tuple[str, ssl.SSLContext]:
    """A certificate of this run's own (PEM), and the server's side that shows it. The key never lies in a file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "computerrl run")])
    now, year = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=366)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - year)  # clocks of machines differ, and the pin is what counts
        .not_valid_after(now + 10 * year)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    shown = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    held = os.memfd_create("door", os.MFD_CLOEXEC)
    try:
        os.write(held, shown + private)
        context.load_cert_chain(f"/proc/self/fd/{held}")
    finally:
        os.close(held)
    return shown.decode(), context
