"""How a host on another machine proves which run it belongs to, and how that run proves itself to the host.

Invariant: both sides prove that they know the ticket's key over nonces of both, for one life and one way, before either
says anything else. Nothing that was recorded from another connection proves anything. Off loopback all of it goes
through TLS, and the ticket holds the only certificate that is believed.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import ssl
from typing import Literal

import msgspec

from runtime.errors import HostLost

KNOCK_S = 10.0  # from the connection to the last proof
NONCE_BYTES = 32
PROOF_BYTES = 32
MAX_KNOCK_BYTES = 1024
# A machine that is cut off sends no FIN: the kernel gives up by itself after about as long as a heartbeat takes.
_IDLE_S, _EVERY_S, _PROBES, _UNACKED_MS = 10, 5, 3, 20_000

Way = Literal["frames", "bulk"]


class HostTicket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one life of a host is given to come in with. It goes by a pipe, never by a command line."""

    address: str  # HOST:PORT of the door
    name: str
    life: str
    key: bytes  # of this life alone
    certificate: str  # PEM; "" without TLS


class Knock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who comes, what for, and the proof."""

    name: str
    life: str
    way: Way
    nonce: bytes
    proof: bytes


def prove(ticket: HostTicket, side: Literal["host", "door"], way: Way, nonces: bytes) -> bytes:
    """HMAC-SHA256 over all that both sides have said. `nonces` has a fixed size and comes first: no field can slide."""
    said = (nonces, side.encode(), way.encode(), ticket.name.encode(), ticket.life.encode())
    return hmac.digest(ticket.key, b"\0".join(said), "sha256")


def knock(ticket: HostTicket, way: Way, theirs: bytes) -> tuple[bytes, bytes]:
    """The bytes to answer the door's nonce `theirs` with, and the proof that the door then has to give."""
    ours = secrets.token_bytes(NONCE_BYTES)
    nonces = theirs + ours
    body = msgspec.msgpack.encode(Knock(ticket.name, ticket.life, way, ours, prove(ticket, "host", way, nonces)))
    return len(body).to_bytes(2, "big") + body, prove(ticket, "door", way, nonces)


def keep_alive(sock: socket.socket) -> None:
    """Send small frames at once, and have the kernel find out that the other machine is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKED_MS)


def trust(certificate: str) -> ssl.SSLContext | None:
    """A client's side that believes `certificate` and no other; None for "". The name in it says nothing."""
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def enter(ticket: HostTicket, way: Way) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Come in by the door. Raises HostLost where it is shut or is not the run that gave the ticket."""
    host, _, port = ticket.address.rpartition(":")
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(KNOCK_S):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=trust(ticket.certificate))
            body, wanted = knock(ticket, way, await reader.readexactly(NONCE_BYTES))
            writer.write(body)
            given = await reader.readexactly(PROOF_BYTES)
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        if writer is not None:
            writer.transport.abort()
        raise HostLost(f"{ticket.name} was not let in at {ticket.address}: {error or 'no answer'}") from error
    if not hmac.compare_digest(given, wanted):
        writer.transport.abort()
        raise HostLost(f"{ticket.address} is not the run that started {ticket.name}")
    keep_alive(writer.get_extra_info("socket"))
    return reader, writer


def enter_blocking(ticket: HostTicket, way: Way) -> socket.socket:
    """The same for a thread: a connected socket whose reads and writes block. Raises HostLost."""
    host, _, port = ticket.address.rpartition(":")
    try:
        sock = socket.create_connection((host, int(port)), KNOCK_S)
    except OSError as error:
        raise HostLost(f"{ticket.address} can't be reached: {error}") from error
    try:
        if (context := trust(ticket.certificate)) is not None:
            sock = context.wrap_socket(sock)
        body, wanted = knock(ticket, way, read_exactly(sock, NONCE_BYTES))
        sock.sendall(body)
        given = read_exactly(sock, PROOF_BYTES)
        if not hmac.compare_digest(given, wanted):
            raise HostLost(f"{ticket.address} is not the run that started {ticket.name}")
        keep_alive(sock)
    except OSError as error:
        sock.close()
        raise HostLost(f"{ticket.name} was not let in at {ticket.address}: {error}") from error
    except HostLost:
        sock.close()
        raise
    return sock


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """`size` bytes of a blocking socket. Raises ConnectionError at its end, OSError as it does."""
    parts = bytearray()
    while len(parts) < size:
        if not (chunk := sock.recv(min(size - len(parts), 1 << 20))):
            raise ConnectionError("the other side closed")
        parts += chunk
    return bytes(parts)
