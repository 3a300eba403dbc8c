"""Who is let in by the door: the life that holds the ticket, once, and nobody else gets a word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from runtime.errors import HostLost
from runtime.hosts import door as doors
from runtime.hosts.door import (
    MAX_KNOCK_BYTES,
    MAX_KNOCKING,
    MAX_OF_ADDRESS,
    NONCE_BYTES,
    Arrival,
    Door,
    HostTicket,
    Knock,
    enter,
    knock,
)
from runtime.hosts.frames import FromMain, Link, StopHost
from runtime.program import passed


def here() -> str:
    """An address of this machine that is not loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has the loopback address alone")
        return str(sock.getsockname()[0])


@asynccontextmanager
async def opened(host: str = "127.0.0.1") -> AsyncIterator[Door]:
    door = Door()
    await door.open(host)
    try:
        yield door
    finally:
        await door.close()


async def met(guest: Arrival, ticket: HostTicket) -> None:
    """Both sides of one life's link: a frame goes from the door to the guest."""
    theirs = Link(*await enter(ticket), FromMain)
    ours: Link = Link(*await guest.came, FromMain)
    ours.write(StopHost())
    assert await theirs.receive() == StopHost()
    await ours.close()
    assert await theirs.receive() is None
    await theirs.close()


async def refused(ticket: HostTicket, match: str = "not let in") -> None:
    with pytest.raises(HostLost, match=match):
        await enter(ticket)


async def test_a_life_is_let_in_once_and_another_never():
    async with opened() as door:
        guest = door.expect("away")
        await refused(msgspec.structs.replace(guest.ticket, key=b"0" * 32))
        await refused(msgspec.structs.replace(guest.ticket, life="0" * 16))
        await refused(msgspec.structs.replace(guest.ticket, name="another"))
        await met(guest, guest.ticket)
        await refused(guest.ticket)
        late = door.expect("away")
        door.forget(late)
        await refused(late.ticket)
        with pytest.raises(HostLost, match="did not come"):
            await late.came
        assert door.refused == 5


async def test_what_was_recorded_proves_nothing():
    async with opened() as door:
        guest = door.expect("away")
        host, _, port = door.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        heard, _ = knock(guest.ticket, await reader.readexactly(NONCE_BYTES))
        writer.transport.abort()  # what was said on one connection is said again on the next
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readexactly(NONCE_BYTES)
        writer.write(heard)
        assert await reader.read() == b""
        writer.transport.abort()
        assert not guest.came.done()


async def test_a_door_that_does_not_know_the_key_is_found_out():
    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"n" * NONCE_BYTES)
        size = int.from_bytes(await reader.readexactly(2), "big")
        theirs = msgspec.msgpack.decode(await reader.readexactly(size), type=Knock)
        writer.write(theirs.proof)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await refused(HostTicket(address, "away", "life", b"k" * 32, "", ""), "not the run that started away")
    await gone.wait()
    server.close()


@pytest.mark.parametrize(
    "said",
    [b"", b"\x00", b"\x00\x05abc", (MAX_KNOCK_BYTES + 1).to_bytes(2, "big") + b"x" * 2000, b"\x00\x03\xc1\xc1\xc1",
     b"GET / HTTP/1.1\r\n\r\n"],
    ids=["nothing", "half a length", "half a knock", "too long", "no knock", "another protocol"],
)  # fmt: skip
async def test_what_is_no_knock_is_closed_without_a_word(monkeypatch, said):
    monkeypatch.setattr(doors, "KNOCK_S", 0.3)
    async with opened() as door:
        guest = door.expect("away")
        host, _, port = door.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        async with asyncio.timeout(5):
            nonce = await reader.readexactly(NONCE_BYTES)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        assert len(nonce) == NONCE_BYTES
        writer.transport.abort()
        await met(guest, guest.ticket)


@pytest.mark.parametrize("off_loopback", [False, True])
async def test_silent_connections_shut_no_host_out(off_loopback: bool) -> None:
    """With TLS they count before their handshake, and take no more descriptors than without."""
    async with opened(here() if off_loopback else "127.0.0.1") as door:
        guest = door.expect("away")
        host, _, port = door.address.rpartition(":")
        before = len(os.listdir("/proc/self/fd"))
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2 * MAX_KNOCKING)]
        async with asyncio.timeout(10):
            while door.refused < 2 * MAX_KNOCKING - MAX_OF_ADDRESS:  # noqa: ASYNC110 - it tells of no changes
                await asyncio.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) - before - len(silent) <= MAX_OF_ADDRESS + 1
        await met(guest, guest.ticket)
        assert await asyncio.wait_for(ended(silent[0][0]), 5), "the oldest goes first"
        assert len(door._knocking) <= MAX_OF_ADDRESS
        for _, writer in silent:
            writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closed after at most the nonce."""
    with contextlib.suppress(ConnectionError):
        return len(await reader.read()) in (0, NONCE_BYTES)
    return True


async def test_off_loopback_the_runs_own_certificate_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(here()) as door, opened(here()) as other:
        guest = door.expect("away")
        assert guest.ticket.certificate.startswith("-----BEGIN CERTIFICATE")
        stranger = other.expect("away").ticket
        await refused(msgspec.structs.replace(guest.ticket, certificate=stranger.certificate))
        with monkeypatch.context() as patched:
            patched.setattr(doors, "KNOCK_S", 0.5)  # neither side has a word for who speaks no TLS
            await refused(msgspec.structs.replace(guest.ticket, certificate=""))
        await met(guest, guest.ticket)


def test_an_environment_is_passed_on_by_name_alone():
    environment = dict.fromkeys(["PATH", "OMP_X", "AWS_SECRET", "LC_ALL", "KEY_A", "KEY_B", "PATHS", "CUDA_X"], "1")
    assert passed(environment, ["KEY_A"]).keys() == {"PATH", "OMP_X", "LC_ALL", "KEY_A", "CUDA_X"}
