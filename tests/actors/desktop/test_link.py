"""The link against agents of every kind: honest, slow, silent, and hostile."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncssh
import msgspec
import pytest

from actors.desktop.faults import LinkState
from actors.desktop.link import MAX_FRAME_BYTES, GuestLink, LinkDown, evidence_of
from actors.desktop.provider import Desktop, DesktopHealth, SshAddress
from actors.errors import GuestRefused
from runtime.errors import ProtocolError

Process = asyncssh.SSHServerProcess
Agent = Callable[[Process, dict], Awaitable[None]]


def frame(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


async def requests(process: Process) -> AsyncIterator[dict]:
    while True:
        try:
            (size,) = struct.unpack(">I", await process.stdin.readexactly(4))
            yield msgspec.msgpack.decode(await process.stdin.readexactly(size))
        except asyncio.IncompleteReadError:
            return


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Agent], Awaitable[Desktop]]]:
    """Makes a desktop whose agent is a function of each request; `ready` is answered honestly."""
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    acceptors: list[asyncssh.SSHAcceptor] = []

    async def start(agent: Agent) -> Desktop:
        async def handle(process: Process) -> None:
            async for request in requests(process):
                if request["m"] == "ready":
                    process.stdout.write(frame({"i": request["i"], "r": True}))
                else:
                    await agent(process, request)
            process.exit(0)

        authorized = asyncssh.import_authorized_keys(client_key.export_public_key().decode())
        acceptor = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=authorized,
            process_factory=handle, encoding=None, reuse_address=True,
        )  # fmt: skip
        acceptors.append(acceptor)
        return Desktop(
            name="test",
            provider="test",
            address=SshAddress(host="127.0.0.1", port=acceptor.get_port()),
            username="agent",
            host_key=host_key.export_public_key(),
            client_key=client_key.export_private_key(),
            agent=("agent", "it's"),
            home="/home/agent",
        )

    yield start
    for acceptor in acceptors:
        acceptor.close()
        await acceptor.wait_closed()


async def down_by(serve, agent: Agent, method: str = "ping", timeout_s: float = 5) -> LinkDown:
    """How the link goes down at the first call."""
    link = await GuestLink.open(await serve(agent), timeout_s=10)
    try:
        with pytest.raises(LinkDown) as down:
            await link.call(method, timeout_s=timeout_s)
        with pytest.raises(LinkDown) as again:
            await link.call("ping", timeout_s=30)
        assert again.value is down.value
        return down.value
    finally:
        await link.close()
        await link.close()


async def test_calls_are_answered_each_by_its_own_reply(serve):
    kept: list[dict] = []

    async def agent(process: Process, request: dict) -> None:
        kept.append(request)
        if len(kept) == 3:
            for one in reversed(kept):
                process.stdout.write(frame({"i": one["i"], "r": one["a"]["argv"][0]}))

    link = await GuestLink.open(await serve(agent), timeout_s=10)
    results = await asyncio.gather(*(link.call("launch", argv=[n], timeout_s=30) for n in (7, 8, 9)))
    assert results == [7, 8, 9]
    assert kept[0] == {"i": 2, "m": "launch", "a": {"argv": [7]}}
    await link.close()


async def test_an_error_reply_leaves_the_link_up(serve):
    async def agent(process: Process, request: dict) -> None:
        answer = {"e": ["no_window", "none"]} if request["m"] == "close" else {"r": "pong"}
        process.stdout.write(frame({"i": request["i"], **answer}))

    link = await GuestLink.open(await serve(agent), timeout_s=10)
    with pytest.raises(GuestRefused) as refused:
        await link.call("close", number=1, timeout_s=30)
    assert refused.value.kind == "no_window"
    assert await link.call("ping", timeout_s=30) == "pong"
    with pytest.raises(ProtocolError, match="no method"):
        await link.call("__class__", timeout_s=30)
    with pytest.raises(ProtocolError, match="a request of"):
        await link.call("write_file", path="x", data=b"x" * MAX_FRAME_BYTES, timeout_s=30)
    assert await link.call("ping", timeout_s=30) == "pong"
    await link.close()


async def test_a_result_of_another_type_is_the_guests_doing(serve):
    for said in (frame({"i": 2, "r": 5}), struct.pack(">I", 8) + b"\x82\xa1i\x02\xa1r\xa1\xff"):

        async def agent(process: Process, _: dict, said: bytes = said) -> None:
            process.stdout.write(said)

        assert (await down_by(serve, agent)).state is LinkState.NONSENSE


async def test_a_silent_agent_ends_at_the_deadline(serve):
    async def agent(process: Process, request: dict) -> None:
        process.stdout.write(frame({"i": request["i"] + 1000, "r": "pong"}))  # nobody waits for that one

    down = await down_by(serve, agent, timeout_s=0.2)
    assert down.state is LinkState.SILENT
    assert 0 <= down.late_s < 60
    assert evidence_of(DesktopHealth(alive=True), down, acted=True).loop_lag_s == down.late_s


async def test_an_agent_that_ends_is_a_lost_link_with_its_last_words(serve):
    async def agent(process: Process, _: dict) -> None:
        process.stderr.write(b"Traceback\nMemoryError: none left\x1b[2J\n")
        process.exit(1)

    down = await down_by(serve, agent)
    assert down.state is LinkState.LOST
    assert "MemoryError" in down.detail


async def test_an_ended_connection_is_a_lost_link(serve):
    async def agent(process: Process, _: dict) -> None:
        process.channel.get_connection().abort()

    assert (await down_by(serve, agent)).state is LinkState.LOST


async def test_nobody_there_is_a_lost_link(serve):
    async def agent(_: Process, __: dict) -> None:
        return

    desktop = await serve(agent)
    nowhere = msgspec.structs.replace(desktop, address=SshAddress(socket="/nonexistent/ssh"))
    with pytest.raises(LinkDown) as down:
        await GuestLink.open(nowhere, timeout_s=30)
    assert down.value.state is LinkState.LOST
