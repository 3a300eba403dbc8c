"""One SSH connection to one desktop for its life, carrying the messages of one in-guest agent.

Invariant: the server has the pinned host key. Every call ends within its deadline, with a value in the shape and within
the bounds declared here, or with an error that says what the host saw. A link that failed once stays failed.

`call` raises `GuestRefused` when the agent could not do it and the desktop goes on. It raises `LinkDown` when the link
is gone. `faults.error_for` turns the state of a `LinkDown` into a fault or into the policy's doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import itertools
import os
import shlex
import socket
import struct
from typing import Annotated, Any, TypeGuard, cast

import asyncssh
import msgspec

from actors.desktop.faults import DesktopHealth, Evidence, LinkState
from actors.desktop.mcp import McpTools
from actors.desktop.network import PROXY, Network
from actors.desktop.provider import Desktop, SshWay
from actors.errors import GuestRefused
from apis import built
from apis.observation import Frame
from runtime.errors import ComputerRLError, ProtocolError

MAX_FRAME_BYTES = 8 << 20
MAX_PICTURE = 4 << 20  # bytes of a screenshot; a guest that sends more sends no picture
Short = Annotated[str, msgspec.Meta(max_length=500)]
ToolText = Annotated[str, msgspec.Meta(max_length=5000)]  # what an application's functions say, for the model
Pixel = Annotated[int, msgspec.Meta(ge=-(1 << 16), le=1 << 16)]
WindowId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class WindowRow(msgspec.Struct, frozen=True):
    """A top-level window as the window manager lists it; screen pixels."""

    id: WindowId
    class_: Short = msgspec.field(name="class")
    title: Short
    active: bool
    x: Pixel = 0
    y: Pixel = 0
    w: Pixel = 0
    h: Pixel = 0
    pid: int = 0


class CommandSeen(msgspec.Struct, frozen=True):
    """How a command of a task file ended; `code` is None where it was stopped at its deadline."""

    code: int | None
    out: Annotated[str, msgspec.Meta(max_length=300_000)]  # or its errors; the end cut off


class Looked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong with the source of a generated function, and its mutants: what was changed, and the source."""

    wrong: Annotated[list[Short], msgspec.Meta(max_length=8)]
    mutants: Annotated[list[tuple[Short, Annotated[str, msgspec.Meta(max_length=20_000)]]], msgspec.Meta(max_length=8)]


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: a result, or an error's kind and text."""

    i: int
    r: msgspec.Raw = msgspec.Raw(b"\xc0")
    e: tuple[Short, Annotated[str, msgspec.Meta(max_length=2000)]] | None = None


MAX_RESULT_BYTES = 2 << 20  # of a method whose answer is no file and no picture; an observation's largest is 1.6 MB
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"  # how each begins; width and height follow
FILES = frozenset(("screenshot", "read_file"))
# What each method answers. A method that is not here can't be called.
RESULTS: dict[str, Any] = {
    "ping": str,
    "ready": bool,
    "launch": int,
    "running": list[int],
    **dict.fromkeys(("run", "application_state", "accessible", "terminal_text", "window_size"), CommandSeen),
    "windows": list[WindowRow],
    **dict.fromkeys(("wait_window", "open_window", "raise_window"), WindowRow),
    "type_text": Short,
    "type_on": Short,
    **dict.fromkeys(("activate", "close", "move", "click", "drag", "scroll", "hotkey")),  # None
    "screenshot": bytes,
    "observe": Frame,
    "tool": ToolText,
    "info": ToolText,
    "look_at_source": Looked,
    "settle": bool,
    "read_file": bytes,
    **dict.fromkeys(("write_file", "tabs", "visited", "offer", "keep")),  # None
}
_DECODERS = {method: msgspec.msgpack.Decoder(result) for method, result in RESULTS.items()}


def is_jpeg(picture: object) -> TypeGuard[bytes]:
    """Whether what a guest sent as its screenshot is a JPEG, by its first bytes, of at most `MAX_PICTURE` bytes."""
    return isinstance(picture, bytes) and picture.startswith(b"\xff\xd8") and len(picture) <= MAX_PICTURE


def png_of(picture: bytes, screen: tuple[int, int]) -> bytes:
    """`picture`, a PNG whose head says the size of the `screen` (pixels): nothing larger is passed on to a model.

    Raises ProtocolError for anything else.
    """
    if picture[:16] != _PNG or picture[16:24] != struct.pack(">II", *screen):
        raise ProtocolError(f"the guest's picture is no PNG of {screen[0]}x{screen[1]} pixels")
    return picture


CIPHERS = ["aes128-gcm@openssh.com"]  # runs in one call of OpenSSL a packet
_ENCODER = msgspec.msgpack.Encoder()
_LENGTH = struct.Struct(">I")
_WINDOW_BYTES = 8 << 20
_PACKET_BYTES = 256 << 10
_CLOSE_S = 5.0
_TICK_S = 1.0
_STDERR_CHARS = 2000
_STRAYS = 64  # answers without a waiting call, from cancelled calls; a stream of them would keep this loop busy
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last one: nested too deep


class LinkDown(ComputerRLError):  # noqa: N818 - a state, in the words of the host
    """The link does not carry calls any more; `state` says what the host saw of it."""

    def __init__(self, state: LinkState, detail: str, late_s: float = 0.0) -> None:
        super().__init__(f"{state}: {detail}")
        self.state = state
        self.detail = detail
        self.late_s = late_s  # the host's own event loop did not run for so long while the call was under way


def evidence_of(health: DesktopHealth, down: LinkDown, *, acted: bool, ready: bool = False) -> Evidence:
    """What the host saw of a desktop whose link is down, for `faults.error_for`; `ready` if it had answered before."""
    detail = down.detail if ready or not health.said else f"{down.detail}; its sandbox said: {health.said}"
    seen = msgspec.structs.asdict(health)
    return Evidence(acted=acted, ready=ready, link=down.state, loop_lag_s=down.late_s, detail=detail, **seen)


def _options(way: SshWay) -> dict[str, Any]:
    """One cheap cipher and key exchange, this key, this host key, and nothing of the user's own SSH settings."""
    trusted = asyncssh.import_public_key(way.host_key)
    return {
        "username": way.username,
        "client_keys": [asyncssh.import_private_key(way.client_key)],
        "known_hosts": ([trusted], [], []),
        "server_host_key_algs": [trusted.get_algorithm()] if trusted.get_algorithm() == "ssh-ed25519" else (),
        "kex_algs": ["curve25519-sha256"],
        "encryption_algs": CIPHERS,
        "compression_algs": ["none"],
        "preferred_auth": "publickey",
        "config": None,
        "agent_path": None,
        "gss_host": None,
        "gss_kex": False,
        "gss_auth": False,
        "x509_trusted_certs": None,
    }


def _name_user() -> None:
    """Give a user that this machine has no name for, as containers run them, one: the client of SSH asks for it."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"uid-{os.geteuid()}"


async def connect(way: SshWay, **more: Any) -> asyncssh.SSHClientConnection:
    """An authenticated connection, with `more` of asyncssh's options. Raises OSError or asyncssh.Error."""
    _name_user()
    options = _options(way) | more
    if not way.address.socket:
        return await asyncssh.connect(way.address.host, way.address.port, **options)
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        plug.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plug, way.address.socket)
        return await asyncssh.connect(sock=plug, **options)
    except BaseException:
        plug.close()
        raise


class _Standstill:
    """How long the event loop does not get to run, by a timer that should come each `_TICK_S`."""

    def __init__(self) -> None:
        self._loop, self._longest = asyncio.get_running_loop(), 0.0
        self._due = self._loop.time()
        self._tick()

    def _tick(self) -> None:
        self._longest = self.longest()
        self._due = self._loop.time() + _TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def longest(self) -> float:
        """Seconds, of the standstill that is just over, too."""
        return max(self._longest, self._loop.time() - self._due)

    def end(self) -> None:
        self._timer.cancel()


class GuestLink:
    """Calls to the agent of one desktop; many may be under way at once, the agent takes them in order."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        door: asyncio.Server | None = None,
    ) -> None:
        self._door = door  # to the network
        self._connection = connection
        self._process = process
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self.down: LinkDown | None = None
        self._mcp = McpTools()
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="guest link")

    @classmethod
    async def open(cls, desktop: Desktop, *, timeout_s: float, network: Network | None = None) -> GuestLink:
        """Connect, start the agent and wait until the desktop is ready; it reaches `network`. Raises LinkDown."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await connect(desktop)
                agent, door = desktop.agent, None
                try:
                    if network is not None:
                        door, agent = await network.serve(desktop, connection), (*agent, "--proxy", PROXY)
                    process = await connection.create_process(
                        shlex.join(agent), encoding=None, window=_WINDOW_BYTES, max_pktsize=_PACKET_BYTES
                    )
                    link = cls(connection, process, door)
                except BaseException:
                    connection.abort()
                    if door is not None:
                        door.close()
                    raise
                try:
                    await link.call("ready", timeout_s=timeout_s)
                    for path, data in network.trusted.items() if network is not None else ():
                        await link.call("write_file", timeout_s=timeout_s, path=path, data=data)
                except BaseException:
                    await link.close()
                    raise
                return link
        except TimeoutError:
            raise LinkDown(LinkState.SILENT, f"not ready within {timeout_s:g} s") from None
        except GuestRefused as error:
            raise LinkDown(LinkState.SILENT, str(error)) from error
        except (asyncssh.Error, OSError) as error:
            raise LinkDown(LinkState.LOST, f"ssh: {error}"[:300]) from error

    async def call(self, method: str, *, timeout_s: float, **args: object) -> Any:
        """Call a method of the agent; its result has the type that `wire.RESULTS` declares.

        Raises GuestRefused, LinkDown, and ProtocolError for a call that the host should not make.
        """
        if method not in RESULTS:
            raise ProtocolError(f"the agent has no method {method!r}")
        if self.down is not None:
            raise self.down
        if method == "tool" and (served := built.served(str(args.get("owner")), str(args.get("name")))):
            return await self._mcp.call(*served, cast(dict[str, Any], args["arguments"]), timeout_s)
        number = next(self._numbers)
        body = _ENCODER.encode({"i": number, "m": method, "a": args})
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"{method}: a request of {len(body)} bytes")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        standstill = _Standstill()
        try:
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(_LENGTH.pack(len(body)) + body)
                await self._process.stdin.drain()
                reply = await answer
        except TimeoutError:
            detail = f"{method}: no answer within {timeout_s:g} s"
            raise self._fail(LinkState.SILENT, detail, standstill.longest()) from None
        except (asyncssh.Error, OSError) as error:
            raise self._fail(LinkState.LOST, f"{method}: {error}"[:300]) from error
        finally:
            standstill.end()
            self._waiting.pop(number, None)
        if reply.e is not None:
            raise GuestRefused(*reply.e)
        if method not in FILES and (size := len(reply.r)) > MAX_RESULT_BYTES:
            raise self._fail(LinkState.NONSENSE, f"{method}: an answer of {size} bytes")
        try:
            return _DECODERS[method].decode(reply.r)
        except _UNREADABLE as error:
            raise self._fail(LinkState.NONSENSE, f"{method}: {error}"[:300]) from error

    def _fail(self, state: LinkState, detail: str, late_s: float = 0.0) -> LinkDown:
        if self.down is None:
            self.down = LinkDown(state, detail, late_s)
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(self.down)
                    answer.exception()  # each waiting call raises it; a call cancelled meanwhile must not warn
        return self.down

    async def _read(self) -> None:
        stream = self._process.stdout
        decoder = msgspec.msgpack.Decoder(Reply)
        strays = 0
        try:
            while True:
                (size,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
                if size > MAX_FRAME_BYTES:
                    self._fail(LinkState.NONSENSE, f"a frame of {size} bytes")
                    return
                reply = decoder.decode(await stream.readexactly(size))
                answer = self._waiting.get(reply.i)
                if answer is not None and not answer.done():
                    answer.set_result(reply)
                    del reply, answer  # until the next one comes they would hold a whole frame
                    continue
                strays += 1
                if strays > _STRAYS:
                    self._fail(LinkState.NONSENSE, f"{strays} answers that no call waits for")
                    return
        except _UNREADABLE as error:
            self._fail(LinkState.NONSENSE, f"not a frame: {error}"[:300])
        except (asyncio.IncompleteReadError, asyncssh.Error, OSError):
            self._fail(LinkState.LOST, await self._last_words())

    async def _last_words(self) -> str:
        output = b""
        with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(0.5):
                output = await self._process.stderr.read(_STDERR_CHARS)
        text = output.decode("utf-8", "backslashreplace").strip().splitlines()[-1:]
        return f"the agent ended: {''.join(text)[:200]}" if text else "the agent ended"

    async def close(self) -> None:
        """Close the connection and end the reading task. A second call does nothing."""
        self._fail(LinkState.LOST, "closed")
        await self._mcp.close()
        self._reader.cancel()
        if self._door is not None:
            self._door.close()
        self._connection.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.wait_closed()
        except TimeoutError:
            self._connection.abort()
        await asyncio.wait([self._reader])
