"""Desktops in sandboxes at a URL that speaks the E2B protocol: each is a sandbox of its own, with one session in it.

A sandbox takes HTTP alone. SSH is carried by its process API: each connection to a local port becomes a process
`sshd -i` in the sandbox, whose input and output it is. The rest is a session on a machine that is reached by SSH.

A sandbox ends by itself `lifetime_s` after its owner last asked for more, so that a dead owner leaves none. The
verifier asks the sandbox itself: what its user may do, the guest may, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Literal

import aiohttp
import asyncssh
import msgspec

from actors.desktop.config import E2bConfig, MachineConfig
from actors.desktop.faults import FaultCause, fault
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers import osworld
from actors.desktop.providers.osworld import ServerKeys, asked, lost, refused
from actors.desktop.providers.ssh import SessionProvider, SshMachine
from actors.errors import DesktopFault

PING_S = 30  # a stream says something as often
STEP = 64 << 10  # bytes of one input
CONNECTIONS = 16  # at the same time, to one sandbox
_ENDED = 2  # the flag of a stream's last message
_Which = dict[str, object]  # a process, as orders name it, and what it gets


class _Created(msgspec.Struct, frozen=True, rename={"id": "sandboxID", "token": "envdAccessToken"}):
    id: str
    token: str | None = None
    domain: str | None = None


class _Event(msgspec.Struct, frozen=True):
    start: dict[Literal["pid"], int] | None = None
    data: dict[str, bytes] | None = None  # by stream
    end: dict[str, Any] | None = None


class _Message(msgspec.Struct, frozen=True):
    event: _Event = _Event()
    error: dict[str, Any] | None = None  # of a stream's last message


class _Api:
    """Requests to the service."""

    def __init__(self, config: E2bConfig, key: str) -> None:
        self._config = config
        self._http = _client({"X-API-Key": key})
        self._place = f"{config.url}/sandboxes"

    async def close(self) -> None:
        await self._http.close()

    async def create(self) -> _Created:
        config = self._config
        closed = {"secure": True, "allow_internet_access": False, "metadata": {"program": "computerrl"}}
        body = closed | {"templateID": config.template, "timeout": config.lifetime_s}
        raw = await asked(self._http, "POST", self._place, body)
        if raw is None:
            raise refused("desktops.provider.template", f"{config.template} is not there")
        try:
            return msgspec.json.decode(raw, type=_Created)
        except msgspec.DecodeError as error:
            raise refused(self._place, error) from error

    async def prolong(self, name: str) -> None:
        await asked(self._http, "POST", f"{self._place}/{name}/timeout", {"timeout": self._config.lifetime_s})

    async def kill(self, name: str) -> None:
        await asked(self._http, "DELETE", f"{self._place}/{name}")


def _client(headers: Mapping[str, str]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0), trust_env=False)


class _Sandbox:
    """One sandbox: its process API, Connect's protocol in JSON, and a port of this machine that leads into it.

    Each connection to the port is an SSH server in the sandbox.
    """

    def __init__(self, config: E2bConfig, made: _Created) -> None:
        url = config.sandbox_url.replace("{id}", made.id).replace("{domain}", made.domain or "")
        self._url = f"{url}/process.Process"
        user = b64encode(f"{config.user}:".encode()).decode()
        headers = {"Authorization": f"Basic {user}", "E2b-Sandbox-Id": made.id, "E2b-Sandbox-Port": "49983"}
        headers |= {"Connect-Protocol-Version": "1"} | ({"X-Access-Token": made.token} if made.token else {})
        self._http = _client(headers)
        self._carried: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)
        await self._http.close()

    @contextlib.asynccontextmanager
    async def _started(self, *argv: str) -> AsyncIterator[tuple[_Which, AsyncIterator[_Event]]]:
        """A process with an input, and what it does; leaving ends no process. Raises DesktopFault."""
        body = msgspec.json.encode({"process": {"cmd": argv[0], "args": argv[1:]}, "stdin": True})
        sent = bytes([0]) + len(body).to_bytes(4, "big") + body
        headers = {"Content-Type": "application/connect+json", "Keepalive-Ping-Interval": str(PING_S)}
        limit = aiohttp.ClientTimeout(sock_connect=osworld.ANSWER_S, sock_read=3 * PING_S)
        asking = self._http.post(f"{self._url}/Start", data=sent, headers=headers, timeout=limit, allow_redirects=False)
        try:
            async with asking as reply:
                if reply.status != 200:
                    raise refused(f"{argv[0]}: status {reply.status}", await reply.content.read(osworld.TEXT_MOST))
                events = _events(reply.content)
                first = await anext(events)
                if not first.start:
                    raise refused(argv[0], "it was not started")
                yield {"process": first.start}, events
        except (OSError, aiohttp.ClientError, asyncio.IncompleteReadError, StopAsyncIteration) as error:
            raise lost(self._url, str(error) or type(error).__name__) from error

    async def _order(self, method: str, which: _Which, what: _Which) -> None:
        if await asked(self._http, "POST", f"{self._url}/{method}", which | what) is None:
            raise lost(self._url, "no such process or sandbox")

    async def output(self, *argv: str) -> str:
        """What a program writes that ends well. Raises DesktopFault."""
        text = {"stdout": b"", "stderr": b""}
        try:
            async with asyncio.timeout(osworld.ANSWER_S), self._started(*argv) as (_, events):
                async for event in events:
                    for name, piece in (event.data or {}).items():
                        text[name] = (text.get(name, b"") + piece)[-osworld.TEXT_MOST :]
                    if event.end and event.end.get("exitCode"):
                        raise refused(f"{argv[0]} in the sandbox", text["stderr"].decode("utf-8", "replace").strip())
        except TimeoutError:
            raise fault(FaultCause.BOOT_TIMEOUT, f"{argv[0]} in the sandbox took over {osworld.ANSWER_S:g} s") from None
        return text["stdout"].decode("utf-8", "replace").strip()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection's callback is a task"
        self._carried.add(task)
        try:
            if len(self._carried) <= CONNECTIONS:
                # A sandbox that is gone ends the connection, and that is what the session's owner sees.
                with contextlib.suppress(DesktopFault, OSError):
                    await self._through(reader, writer)
        finally:
            self._carried.discard(task)
            writer.close()

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._started(osworld.SSHD, "-i", "-f", f"{osworld.PLACE}/sshd_config") as (which, events):
            sending = asyncio.ensure_future(self._send(reader, which))
            sending.add_done_callback(lambda _: writer.close())  # also where the sandbox takes nothing more
            try:
                async for event in events:
                    if event.data and (piece := event.data.get("stdout")):
                        writer.write(piece)
                        await writer.drain()
                    if event.end or sending.done():
                        return
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, reader: asyncio.StreamReader, which: _Which) -> None:
        """All that comes, then the end of the server: its process would outlive the connection."""
        while piece := await reader.read(STEP):
            await self._order("SendInput", which, {"input": {"stdin": piece}})
        await self._order("SendSignal", which, {"signal": "SIGNAL_SIGKILL"})


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[_Event]:
    """The events of a stream up to its end. Raises DesktopFault where it ends by an error, or is not understood."""
    while True:
        head = await stream.readexactly(5)
        flags, size = head[0], int.from_bytes(head[1:], "big")
        if size > osworld.ANSWER_BYTES or flags not in (0, _ENDED):
            raise refused("a stream of the sandbox", f"flags {flags}, {size} bytes")
        raw = await stream.readexactly(size)
        try:
            message = msgspec.json.decode(raw or b"{}", type=_Message)
        except msgspec.DecodeError as problem:
            raise refused("a stream of the sandbox", problem) from problem
        if message.error is not None:
            raise refused("a process of the sandbox", message.error)
        if flags == _ENDED:
            return
        yield message.event


class E2bProvider(SessionProvider):
    """Makes sandboxes from a template that holds the guest packages."""

    KIND = "e2b"
    WARNING = "the verifier asks the sandbox itself"

    def __init__(self, config: E2bConfig, key: str) -> None:
        super().__init__(config.desktops)
        self._config = config
        self._api = _Api(config, key)
        # By desktop: its sandbox, what renews that, and what ends the rest.
        self._made: dict[str, tuple[str, asyncio.Task[None], AsyncExitStack]] = {}

    async def boot(self, spec: DesktopSpec) -> Desktop:
        """See `Provider.boot`: a sandbox, then a session in it."""
        await self._take_place()
        async with AsyncExitStack() as undone:
            undone.callback(self._free.release)
            made = await self._api.create()
            undone.push_async_callback(self._api.kill, made.id)
            renewing = asyncio.ensure_future(self._renew(made.id))
            undone.callback(renewing.cancel)
            sandbox = _Sandbox(self._config, made)
            undone.push_async_callback(sandbox.close)
            keys = ServerKeys()
            user = await sandbox.output(*keys.started())
            public, port = keys.host.export_public_key().decode(), await sandbox.open()
            here = MachineConfig(host="127.0.0.1", port=port, user=user, client_key="made here", host_key=public)
            machine = SshMachine(here, keys.client)
            undone.push_async_callback(machine.close)
            desktop = await self._boot_on(machine, made.id, spec)
            self._made[desktop.name] = made.id, renewing, undone.pop_all()
        return desktop

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(self._config.lifetime_s / 3)
            with contextlib.suppress(DesktopFault):  # one that has ended by then its link reports as lost
                await self._api.prolong(name)

    async def destroy(self, desktop: Desktop) -> None:
        """See `Provider.destroy`. Raises DesktopFault where the service does not answer; a later call tries again."""
        await self._end(desktop.name)

    async def _end(self, name: str) -> None:
        if name not in self._made:
            return
        sandbox, renewing, undone = self._made[name]
        renewing.cancel()  # one that can't be killed now ends by itself
        await self._api.kill(sandbox)
        if self._made.pop(name, None) is None:
            return  # another call has done the rest
        self._sessions.pop(name).connection.abort()
        with contextlib.suppress(DesktopFault, OSError, TimeoutError, asyncssh.Error):  # its server is gone
            await undone.aclose()

    async def close(self) -> None:
        results = await asyncio.gather(*(self._end(name) for name in list(self._made)), return_exceptions=True)
        await self._api.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result
