"""Who is let in by the door: the life that holds the ticket, once, and nobody else gets a word."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from runtime.errors import HostLost
from runtime.hosts import door as doors
from runtime.hosts.door import (
    MAX_KNOCKING,
    MAX_OF_ADDRESS,
    Arrival,
    Door,
    HostTicket,
    enter,
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
        await met(guest, guest.ticket)
        await refused(guest.ticket)
        late = door.expect("away")
        door.forget(late)
        await refused(late.ticket)
        with pytest.raises(HostLost, match="did not come"):
            await late.came
        assert door.refused == 4


async def spoken(door: Door, *words: bytes) -> list[bytes]:
    """What the door answers to each of `words` over a TLS connection of a stranger who believes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = door.address.rpartition(":")
    answers = []
    for word in words:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(word)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                answers.append(await reader.read())
        writer.transport.abort()
    return answers


async def test_what_is_no_key_is_closed_without_a_word(monkeypatch):
    monkeypatch.setattr(doors, "KNOCK_S", 0.3)
    async with opened() as door:
        guest = door.expect("away")
        life = guest.ticket.life.encode()
        words = (b"", b"abc", life, life + b"x" * 32, b"\xff" * 48, b"GET / HTTP/1.1\r\n\r\n" * 9)
        assert await spoken(door, *words) == [b""] * len(words)
        host, _, port = door.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))  # who speaks no TLS gets an alert at most
        writer.write(life + guest.ticket.key)
        async with asyncio.timeout(60):
            assert await reader.read() != doors.LET_IN
        writer.transport.abort()
        assert not guest.came.done()
        await met(guest, guest.ticket)


@pytest.mark.parametrize("off_loopback", [False, True])
async def test_silent_connections_shut_no_host_out(off_loopback: bool) -> None:
    """They count before their handshake."""
    async with opened(here() if off_loopback else "127.0.0.1") as door:
        guest = door.expect("away")
        host, _, port = door.address.rpartition(":")
        before = len(os.listdir("/proc/self/fd"))
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(2 * MAX_KNOCKING)]
        async with asyncio.timeout(60):
            while door.refused < 2 * MAX_KNOCKING - MAX_OF_ADDRESS:  # noqa: ASYNC110 - it tells of no changes
                await asyncio.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) - before - len(silent) <= MAX_OF_ADDRESS + 1
        await met(guest, guest.ticket)
        assert await asyncio.wait_for(ended(silent[0][0]), 60), "the oldest goes first"
        assert len(door._knocking) <= MAX_OF_ADDRESS
        for _, writer in silent:
            writer.transport.abort()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closed without a word."""
    with contextlib.suppress(ConnectionError):
        return not await reader.read()
    return True


async def test_the_runs_own_certificate_is_the_only_one() -> None:
    async with opened() as door, opened() as other:
        guest, stranger = door.expect("away"), other.expect("away").ticket
        await refused(msgspec.structs.replace(guest.ticket, certificate=stranger.certificate))
        await refused(msgspec.structs.replace(guest.ticket, address=other.address), "certificate")
        await met(guest, guest.ticket)


def test_an_environment_is_passed_on_by_name_alone():
    environment = dict.fromkeys(["PATH", "OMP_X", "AWS_SECRET", "LC_ALL", "KEY_A", "KEY_B", "PATHS", "CUDA_X"], "1")
    assert passed(environment, ["KEY_A"]).keys() == {"PATH", "OMP_X", "LC_ALL", "KEY_A", "CUDA_X"}


@pytest.mark.parametrize(("address", "expected"), [("127.0.0.1:7000", "127.0.0.1"), ("127.0.0.5:1", "127.0.0.1")])
def test_loopback_is_reached_by_loopback(address: str, expected: str) -> None:
    assert doors.towards(address) == expected
    assert doors.interface_of(expected) == "lo"


def test_what_no_interface_has_is_named_by_none() -> None:
    assert doors.interface_of("203.0.113.7") == ""
    with pytest.raises(OSError, match=r"."):
        doors.towards("no.such.host.invalid:1")
