"""Looking into a running system from another process, and asking it to change.

Invariant: the control socket by itself changes nothing: all but `status` is a command of the system's owner. A client
that is silent or does not read is dropped in bounded time. A command that is too large is refused unread. A command
that has begun does not end with its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from runtime.errors import ActorGone, ComputerRLError, ConfigError
from runtime.logs.writer import COMMAND_FAILED, ActorLog
from runtime.waits import ActorStatus


def listen_unix(path: Path) -> socket.socket:
    """A listening socket at `path`, open to its owner only. Raises ConfigError when a process serves there already."""
    if path.exists():
        try:
            connect_unix(path, 1.0).close()
        except OSError:
            path.unlink()  # left by a process that was killed
        else:
            raise ConfigError(f"{path} is served by a running process")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.bind(f"/proc/self/fd/{folder}/{path.name}")
        path.chmod(0o600)
        sock.listen(16)
    except OSError as error:
        sock.close()
        raise ConfigError(f"can't listen at {path}: {error}") from error
    finally:
        os.close(folder)
    sock.setblocking(False)
    return sock


def connect_unix(path: Path, timeout_s: float) -> socket.socket:
    """A blocking socket connected to `path`. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        sock.close()
        raise
    return sock


SOCKET = "control.sock"
STATUS = "status"
CLIENT_TIMEOUT_S = 10.0
SILENT_S = 120.0  # between two lines of a command
MAX_CLIENTS = 16
MAX_BODY_BYTES = 4 << 20

Say = Callable[[str], None]


class CommandReply(msgspec.Struct, frozen=True):
    """A line of a command's answer: what it says, why it was refused, or that it is done."""

    text: str = ""
    refused: bool = False
    done: bool = False


class ControlServer:
    """Serves `<run_dir>/control.sock` in the main host."""

    def __init__(self, run_dir: Path, statuses: Callable[[], Awaitable[list[ActorStatus]]], log: ActorLog) -> None:
        self._path = run_dir / SOCKET
        self._log = log

        async def status(_: bytes, say: Say) -> None:
            say(msgspec.json.encode(await statuses()).decode())

        # By name; each gets its body and a way to say something, and raises ComputerRLError to refuse.
        self.commands: dict[str, Callable[[bytes, Say], Awaitable[None]]] = {STATUS: status}
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises ConfigError when another process runs this run."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, sock=listen_unix(self._path))

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._clients:
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            # Anybody may hang up at any moment: that is the client's loss alone.
            with contextlib.suppress(
                ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(CLIENT_TIMEOUT_S) as limit:
                    if len(self._clients) <= MAX_CLIENTS:
                        name = (await reader.readuntil(b"\n")).decode("ascii", "replace").strip()
                        if name in self.commands:
                            size = int.from_bytes(await reader.readexactly(4))
                            if why := too_large(name, size):
                                _say(writer, CommandReply(why, refused=True))
                            else:
                                body = await reader.readexactly(size)
                                limit.reschedule(None)  # a command has limits of its own
                                await self._carry_out(name, body, writer)
                                limit.reschedule(asyncio.get_running_loop().time() + CLIENT_TIMEOUT_S)
                        await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._clients.discard(task)

    async def _carry_out(self, name: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            await self.commands[name](body, lambda text: _say(writer, CommandReply(text)))
        except ComputerRLError as error:
            _say(writer, CommandReply(str(error), refused=True))
        except Exception as error:  # noqa: BLE001 - the system goes on, and the client gets the cause
            cause = f"{type(error).__name__}: {error}"
            self._log.emit(COMMAND_FAILED, name=name, error=cause, traceback=traceback.format_exception(error)[-60:])
            why = f"{name} failed, perhaps in part: {cause}; the run's log says where"
            _say(writer, CommandReply(why, refused=True))
        else:
            _say(writer, CommandReply(done=True))


def too_large(name: str, size: int) -> str:
    """Why command `name` can't be asked with a body of `size` bytes; "" where it can."""
    if size <= MAX_BODY_BYTES:
        return ""
    return f"{name} is asked with {size / (1 << 20):.1f} MiB, and a live run takes at most {MAX_BODY_BYTES >> 20} MiB"


def _say(writer: asyncio.StreamWriter, reply: CommandReply) -> None:
    if not writer.is_closing():
        writer.write(msgspec.json.encode(reply) + b"\n")


def command(run_dir: Path, name: str, body: bytes, heard: Say, silent_s: float = SILENT_S) -> None:
    """Have the run in `run_dir` carry out command `name`; `heard` gets what it says.

    Raises ActorGone when no process runs it or it ends first, ConfigError with what it refuses or for a `body` that is
    too large.
    """
    if why := too_large(name, len(body)):  # the run would not read it, and so end the connection
        raise ConfigError(why)
    try:
        with connect_unix(run_dir.resolve() / SOCKET, silent_s) as sock, sock.makefile("rb") as lines:
            sock.sendall(name.encode() + b"\n" + len(body).to_bytes(4) + body)
            for line in lines:
                reply = msgspec.json.decode(line, type=CommandReply)
                if reply.refused:
                    raise ConfigError(reply.text)
                if reply.done:
                    return
                heard(reply.text)
    except (OSError, msgspec.MsgspecError) as error:
        raise ActorGone(f"no process runs {run_dir}: {error}") from error
    raise ActorGone(f"the run in {run_dir} ended, or does not know {name}")


def query_status(run_dir: Path, timeout_s: float = 15.0) -> list[ActorStatus]:
    """What every actor of the run in `run_dir` is doing. Raises ActorGone when no process runs it."""
    texts: list[str] = []
    try:
        command(run_dir, STATUS, b"", texts.append, timeout_s)
        return msgspec.json.decode("".join(texts), type=list[ActorStatus])
    except (ConfigError, msgspec.DecodeError) as error:
        raise ActorGone(f"the process that runs {run_dir} did not answer: {error}") from error
