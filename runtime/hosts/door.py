"""Where hosts on other machines come in: one TCP port.

Invariant: a connection that has not proved within `KNOCK_S` that it holds the ticket of a life that is waited for is
closed without a word. So is each beyond `MAX_KNOCKING` at the same time. A life's frames are let in once; what is over
is let in never again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hmac
import ipaddress
import os
import secrets
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from runtime.errors import ConfigError, HostLost
from runtime.hosts.ticket import KNOCK_S, MAX_KNOCK_BYTES, NONCE_BYTES, HostTicket, Knock, Way, keep_alive, prove

MAX_KNOCKING = 64  # connections that have not proved anything yet
MAX_BULK = 4  # bulk connections of one life

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


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
        self._knocking: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int = 0) -> None:
        """Listen at `host`, with TLS where it is not a loopback address. Raises ConfigError."""
        context: ssl.SSLContext | None = None
        if not _is_loopback(host):
            self._certificate, context = _certified()
        try:
            self._server = await asyncio.start_server(
                self._knocked, host, port, ssl=context, ssl_handshake_timeout=KNOCK_S if context is not None else None
            )
        except OSError as error:
            raise ConfigError(f"can't listen at {host}:{port} for hosts on other machines: {error}") from error
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

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
        if self._server is not None:
            self._server.close()
        await _end(self._knocking)
        await asyncio.gather(*(self.forget(guest) for guest in list(self._guests.values())))

    async def _knocked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._knocking.add(task)
        came: tuple[Arrival, Way] | None = None
        try:
            if len(self._knocking) <= MAX_KNOCKING:
                async with asyncio.timeout(KNOCK_S):
                    came = await self._checked(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, msgspec.DecodeError):
            came = None
        finally:
            self._knocking.discard(task)
            if came is None:
                self.refused += 1
                writer.transport.abort()
        if came is not None and came[1] == "bulk":
            await self._bulk(came[0], task, reader, writer)

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


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
