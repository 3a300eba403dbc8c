"""The TCP port where hosts on other machines connect, and how both sides prove which run they belong to.

Invariant: a connection counts from the moment it is accepted, before TLS, until it has proved that it holds the ticket
of an expected life. It has `KNOCK_S` for that. There are never more than `MAX_KNOCKING` such connections, nor more than
`MAX_OF_ADDRESS` of one address: the oldest makes room for the next. A life's frames are let in once.

The door proves itself by the run's own certificate, the only one that a ticket's holder believes. The host then shows
its life's key, which no other side has seen: nothing is sent before TLS has shown the certificate.
"""

from __future__ import annotations

import asyncio
import datetime
import hmac
import os
import secrets
import socket
import ssl
from collections.abc import Collection

import msgspec
import psutil

from runtime.errors import ConfigError, HostLost
from runtime.supervision import in_the_way


def towards(address: str) -> str:
    """This machine's address on the way to `address`, which is HOST:PORT. Raises OSError where there is no way."""
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, target = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.connect(target)  # of a datagram socket: only the way is chosen
        return str(sock.getsockname()[0])


def interface_of(address: str) -> str:
    """The network interface that has `address`; "" where none has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    return ""


KNOCK_S = 10.0  # from the connection to the key
LIFE_BYTES, KEY_BYTES = 16, 32
LET_IN = b"\1"
MARK = ".placed"  # in a run's folder: by its content a host elsewhere knows that its machine has that folder
# A machine that is cut off sends no FIN: the kernel gives up by itself after about as long as a heartbeat takes.
_IDLE_S, _EVERY_S, _PROBES, _UNACKED_MS = 10, 5, 3, 20_000


class HostTicket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one life of a host is given to come in with. It goes by a pipe, never by a command line."""

    address: str  # HOST:PORT of the door
    name: str
    life: str  # `LIFE_BYTES` characters
    key: bytes  # of this life alone, `KEY_BYTES`
    certificate: str  # PEM
    mark: str  # what the run's folder holds in `MARK`, where the host's machine has that folder


def keep_alive(sock: socket.socket) -> None:
    """Send small frames at once, and have the kernel find out that the other machine is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKED_MS)


def _believing(certificate: str) -> ssl.SSLContext:
    """A client's side that believes `certificate` and no other. The name in it says nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def enter(ticket: HostTicket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Come in by the door. Raises HostLost where it is shut or is not the run that gave the ticket."""
    host, _, port = ticket.address.rpartition(":")
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(KNOCK_S):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=_believing(ticket.certificate))
            writer.write(ticket.life.encode() + ticket.key)
            await reader.readexactly(len(LET_IN))
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        if writer is not None:
            writer.transport.abort()
        raise HostLost(f"{ticket.name} was not let in at {ticket.address}: {error or 'no answer'}") from error
    keep_alive(writer.get_extra_info("socket"))
    return reader, writer


MAX_KNOCKING = 64  # connections that have not proved anything yet
MAX_OF_ADDRESS = 48  # of them
AGAIN_S = 0.2  # after the system gave no descriptor for a connection

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Knocking = dict[asyncio.Task[None], str]  # the address of each, the oldest first


class Arrival:
    """One life that may connect. `came` gets its streams, or HostLost once it may no more."""

    def __init__(self, ticket: HostTicket) -> None:
        self.ticket = ticket
        self.came: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()


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

    async def open(self, host: str) -> None:
        """Listen at `host`. Raises ConfigError."""
        self._certificate, self._context = _certified()
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, 0), family=family, backlog=MAX_KNOCKING)
        except OSError as error:
            raise ConfigError(f"can't listen at {host} for hosts on other machines: {error}") from error
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listener), name="door")
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    def expect(self, name: str, mark: str = "") -> Arrival:
        """A fresh life of host `name` that may connect; `mark` is the run folder's."""
        life, key = secrets.token_hex(LIFE_BYTES // 2), secrets.token_bytes(KEY_BYTES)
        ticket = HostTicket(self.address, name, life, key, self._certificate, mark)
        guest = self._guests[life] = Arrival(ticket)
        return guest

    def forget(self, guest: Arrival) -> None:
        self._guests.pop(guest.ticket.life, None)
        if not guest.came.done():
            guest.came.set_exception(HostLost(f"host {guest.ticket.name} did not come"))
            guest.came.exception()

    async def close(self) -> None:
        if self._accepting is not None:
            await _end([self._accepting])
        if self._listener is not None:
            self._listener.close()
        await _end(list(self._knocking))
        for guest in list(self._guests.values()):
            self.forget(guest)

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections one by one, each once there is room for it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(listener)
            except OSError:  # no descriptor is left, or the other side is gone already
                await asyncio.sleep(AGAIN_S)
                continue
            oldest = in_the_way(self._knocking, peer[0], most=MAX_KNOCKING, of_address=MAX_OF_ADDRESS)
            if oldest is not None:
                await _end([oldest])
            task = asyncio.create_task(self._knocked(sock), name=f"knock of {peer[0]}")
            self._knocking[task] = peer[0]
            await asyncio.sleep(0)  # a task that has not begun when it is cancelled would close nothing

    async def _knocked(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        came = False
        streams: Streams | None = None
        try:
            async with asyncio.timeout(KNOCK_S):
                streams = await _streams(sock, self._context)
                came = await self._checked(*streams)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            came = False
        finally:
            self._knocking.pop(task, None)
            if not came:
                self.refused += 1
                if streams is None:
                    sock.close()
                else:
                    streams[1].transport.abort()

    async def _checked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether an expected life has shown its key; its streams are handed over then."""
        shown = await reader.readexactly(LIFE_BYTES + KEY_BYTES)
        guest = self._guests.get(shown[:LIFE_BYTES].decode("ascii", "replace"))
        if guest is None or guest.came.done() or not hmac.compare_digest(shown[LIFE_BYTES:], guest.ticket.key):
            return False
        writer.write(LET_IN)
        keep_alive(writer.get_extra_info("socket"))
        guest.came.set_result((reader, writer))
        return True


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _streams(sock: socket.socket, context: ssl.SSLContext | None) -> Streams:
    """The streams over an accepted connection, after TLS. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, sock, ssl=context, ssl_handshake_timeout=KNOCK_S
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
    memory = os.memfd_create("door", os.MFD_CLOEXEC)
    try:
        os.write(memory, shown + private)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return shown.decode(), context
