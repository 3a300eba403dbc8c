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
from actors.desktop.providers.ssh import SessionProvider, SshMachine
from actors.errors import DesktopFault

API_S = 60.0  # one request
PING_S = 30  # a stream says something as often
STEP = 64 << 10  # bytes of one input
MOST = 4 << 20  # bytes of one message
TEXT_MOST = 300
CONNECTIONS = 16  # at the same time, to one sandbox
_ENDED = 2  # the flag of a stream's last message
SSHD = "/usr/sbin/sshd"
# Keys and settings of the sandbox's SSH server, in a new folder whose name is its output, before its user's.
SET_UP = f"""umask 077 && folder=$(mktemp -d) && printf %s "$1" >$folder/host_key && printf %s "$2" >$folder/clients &&
printf 'HostKey %s\\nAuthorizedKeysFile %s\\nUsePAM no\\nStrictModes no\\nMaxSessions 32\\nPidFile none\\n' \\
    $folder/host_key $folder/clients >$folder/config && {SSHD} -t -f $folder/config && echo $folder $(id -un)"""


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


def _refused(what: str, why: object) -> DesktopFault:
    return fault(FaultCause.BOOT_FAILED, f"{what}: {why}"[:TEXT_MOST])


def _lost(url: str, error: BaseException) -> DesktopFault:
    return fault(FaultCause.MACHINE_UNREACHABLE, f"{url}: {str(error) or type(error).__name__}"[:TEXT_MOST])


class _Api:
    """Requests to the service and to the sandboxes."""

    def __init__(self, config: E2bConfig, key: str) -> None:
        self._config = config
        self._headers = {"X-API-Key": key}
        limit = aiohttp.ClientTimeout(total=API_S)
        self._client = aiohttp.ClientSession(timeout=limit, connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    async def close(self) -> None:
        await self._client.close()

    async def request(
        self, method: Literal["POST", "DELETE"], url: str, headers: Mapping[str, str], body: object = None
    ) -> bytes | None:
        """The body of an answer, None for 404. Raises DesktopFault."""
        try:
            async with self._client.request(method, url, headers=headers, json=body, allow_redirects=False) as reply:
                raw = await _whole(reply)
                if reply.status >= 300 and reply.status != 404:
                    raise _refused(f"{url}: status {reply.status}", raw[:TEXT_MOST].decode("utf-8", "replace"))
                return None if reply.status == 404 else raw
        except (OSError, aiohttp.ClientError) as error:
            raise _lost(url, error) from error

    async def create(self) -> _Created:
        config = self._config
        closed = {"secure": True, "allow_internet_access": False, "metadata": {"program": "computerrl"}}
        body = closed | {"templateID": config.template, "timeout": config.lifetime_s}
        raw = await self.request("POST", f"{config.url}/sandboxes", self._headers, body)
        if raw is None:
            raise _refused("desktops.provider.template", f"{config.template} is not there")
        try:
            return msgspec.json.decode(raw, type=_Created)
        except msgspec.DecodeError as error:
            raise _refused(f"{config.url}/sandboxes", error) from error

    async def prolong(self, name: str) -> None:
        body = {"timeout": self._config.lifetime_s}
        await self.request("POST", f"{self._config.url}/sandboxes/{name}/timeout", self._headers, body)

    async def kill(self, name: str) -> None:
        await self.request("DELETE", f"{self._config.url}/sandboxes/{name}", self._headers)

    def envd(self, made: _Created) -> _Envd:
        url = self._config.sandbox_url.replace("{id}", made.id).replace("{domain}", made.domain or "")
        user = b64encode(f"{self._config.user}:".encode()).decode()
        headers = {"Authorization": f"Basic {user}", "E2b-Sandbox-Id": made.id, "E2b-Sandbox-Port": "49983"}
        return _Envd(self, self._client, url, headers | ({"X-Access-Token": made.token} if made.token else {}))


class _Envd:
    """The process API of one sandbox: Connect's protocol in JSON."""

    def __init__(self, api: _Api, client: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> None:
        self._api = api
        self._client = client
        self._url = f"{url}/process.Process"
        self._headers = {**headers, "Connect-Protocol-Version": "1"}

    @contextlib.asynccontextmanager
    async def start(self, *argv: str) -> AsyncIterator[_Process]:
        """A process with an input; leaving ends no process. Raises DesktopFault."""
        body = msgspec.json.encode({"process": {"cmd": argv[0], "args": argv[1:]}, "stdin": True})
        url = f"{self._url}/Start"
        sent = bytes([0]) + len(body).to_bytes(4, "big") + body
        headers = self._headers | {"Content-Type": "application/connect+json", "Keepalive-Ping-Interval": str(PING_S)}
        limit = aiohttp.ClientTimeout(sock_connect=API_S, sock_read=3 * PING_S)
        try:
            async with self._client.post(
                url, data=sent, headers=headers, timeout=limit, allow_redirects=False
            ) as reply:
                if reply.status != 200:
                    raise _refused(f"{argv[0]}: status {reply.status}", (await _whole(reply))[:TEXT_MOST])
                events = _events(reply.content)
                first = await anext(events)
                if not first.start:
                    raise _refused(argv[0], "it was not started")
                yield _Process(self, first.start["pid"], events)
        except (OSError, aiohttp.ClientError, asyncio.IncompleteReadError, StopAsyncIteration) as error:
            raise _lost(self._url, error) from error

    async def unary(self, method: str, body: object) -> None:
        if await self._api.request("POST", f"{self._url}/{method}", self._headers, body) is None:
            raise fault(FaultCause.MACHINE_UNREACHABLE, f"{self._url}: no such process or sandbox")

    async def output(self, *argv: str) -> str:
        """What a program writes that ends well. Raises DesktopFault."""
        text = {"stdout": b"", "stderr": b""}
        try:
            async with asyncio.timeout(API_S), self.start(*argv) as process:
                async for event in process.events:
                    for name, piece in (event.data or {}).items():
                        text[name] = (text.get(name, b"") + piece)[-TEXT_MOST:]
                    if event.end and event.end.get("exitCode"):
                        raise _refused(f"{argv[0]} in the sandbox", text["stderr"].decode("utf-8", "replace").strip())
        except TimeoutError:
            raise fault(FaultCause.BOOT_TIMEOUT, f"{argv[0]} in the sandbox took over {API_S:g} s") from None
        return text["stdout"].decode("utf-8", "replace").strip()


class _Process:
    """A process in a sandbox."""

    def __init__(self, envd: _Envd, pid: int, events: AsyncIterator[_Event]) -> None:
        self._envd = envd
        self._which = {"process": {"pid": pid}}
        self.events = events

    async def write(self, data: bytes) -> None:
        await self._envd.unary("SendInput", {**self._which, "input": {"stdin": b64encode(data).decode()}})

    async def kill(self) -> None:
        await self._envd.unary("SendSignal", {**self._which, "signal": "SIGNAL_SIGKILL"})


async def _whole(reply: aiohttp.ClientResponse) -> bytes:
    """A body of at most `MOST` bytes; the rest is left."""
    raw = bytearray()
    while len(raw) < MOST and (piece := await reply.content.read(MOST - len(raw))):
        raw += piece
    return bytes(raw)


async def _events(stream: aiohttp.StreamReader) -> AsyncIterator[_Event]:
    """The events of a stream up to its end. Raises DesktopFault where it ends by an error, or is not understood."""
    while True:
        head = await stream.readexactly(5)
        flags, size = head[0], int.from_bytes(head[1:], "big")
        if size > MOST or flags not in (0, _ENDED):
            raise _refused("a stream of the sandbox", f"flags {flags}, {size} bytes")
        raw = await stream.readexactly(size)
        try:
            message = msgspec.json.decode(raw or b"{}", type=_Message)
        except msgspec.DecodeError as problem:
            raise _refused("a stream of the sandbox", problem) from problem
        if message.error is not None:
            raise _refused("a process of the sandbox", message.error)
        if flags == _ENDED:
            return
        yield message.event


class _Door:
    """A port of this machine whose connections are SSH servers in one sandbox."""

    def __init__(self, envd: _Envd, config: str) -> None:
        self._envd = envd
        self._config = config
        self._carried: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._carried:
            task.cancel()
        await asyncio.gather(*self._carried, return_exceptions=True)

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
        async with self._envd.start(SSHD, "-i", "-f", self._config) as process:
            sending = asyncio.ensure_future(self._send(reader, process))
            sending.add_done_callback(lambda _: writer.close())  # also where the sandbox takes nothing more
            try:
                async for event in process.events:
                    if event.data and (piece := event.data.get("stdout")):
                        writer.write(piece)
                        await writer.drain()
                    if event.end or sending.done():
                        return
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, reader: asyncio.StreamReader, process: _Process) -> None:
        """All that comes, then the end of the server: its process would outlive the connection."""
        while piece := await reader.read(STEP):
            await process.write(piece)
        await process.kill()


class _Sandbox(msgspec.Struct):
    """What there is of one sandbox on this machine."""

    id: str
    door: _Door
    machine: SshMachine
    renewing: asyncio.Task[None]


class E2bProvider(SessionProvider):
    """Makes sandboxes from a template that holds the guest packages."""

    KIND = "e2b"
    WARNING = "the verifier asks the sandbox itself"

    def __init__(self, config: E2bConfig, key: str) -> None:
        super().__init__(config.desktops)
        self._config = config
        self._api = _Api(config, key)
        self._sandboxes: dict[str, _Sandbox] = {}

    async def boot(self, spec: DesktopSpec) -> Desktop:
        """See `Provider.boot`: a sandbox, then a session in it."""
        await self._take_place()
        async with AsyncExitStack() as undone:
            undone.callback(self._free.release)
            made = await self._api.create()
            undone.push_async_callback(self._api.kill, made.id)
            renewing = asyncio.ensure_future(self._renew(made.id))
            undone.callback(renewing.cancel)
            host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
            envd = self._api.envd(made)
            keys = (host_key.export_private_key().decode(), client_key.export_public_key().decode())
            config, _, user = (await envd.output("/bin/sh", "-c", SET_UP, "sh", *keys)).partition(" ")
            door = _Door(envd, f"{config}/config")
            undone.push_async_callback(door.close)
            public, port = host_key.export_public_key().decode(), await door.open()
            here = MachineConfig(host="127.0.0.1", port=port, user=user, client_key="made here", host_key=public)
            machine = SshMachine(here, client_key)
            undone.push_async_callback(machine.close)
            desktop = await self._boot_on(machine, made.id, spec)
            undone.pop_all()
        self._sandboxes[desktop.name] = _Sandbox(made.id, door, machine, renewing)
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
        sandbox = self._sandboxes.get(name)
        if sandbox is None:
            return
        sandbox.renewing.cancel()
        await self._api.kill(sandbox.id)
        if self._sandboxes.pop(name, None) is None:
            return  # another call has done the rest
        self._sessions.pop(name).connection.abort()
        self._free.release()
        await sandbox.door.close()
        with contextlib.suppress(OSError, TimeoutError, asyncssh.Error):  # its server is gone
            await sandbox.machine.close()

    async def close(self) -> None:
        results = await asyncio.gather(*(self._end(name) for name in list(self._sandboxes)), return_exceptions=True)
        await self._api.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result
