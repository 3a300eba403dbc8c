"""Looking into a running system from another process.

Invariant: the control socket answers with statuses and changes nothing. A client that is silent, sends too much or
does not read is dropped in bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from runtime.errors import ActorGone, ProtocolError
from runtime.messaging.codec import decode, encode
from runtime.sockets import connect_unix, listen_unix
from runtime.status import ActorStatus

SOCKET = "control.sock"
REQUEST = b"status\n"
CLIENT_TIMEOUT_S = 10.0
MAX_CLIENTS = 16


class ControlServer:
    """Serves `<run_dir>/control.sock` in the main host."""

    def __init__(self, run_dir: Path, statuses: Callable[[], Awaitable[list[ActorStatus]]]) -> None:
        self._path = run_dir / SOCKET
        self._statuses = statuses
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises ConfigError when another process runs this run."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, sock=listen_unix(self._path))

    async def close(self) -> None:
        """Stop listening, drop the clients, remove the socket."""
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
            with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(CLIENT_TIMEOUT_S):
                    if len(self._clients) <= MAX_CLIENTS and await reader.readexactly(len(REQUEST)) == REQUEST:
                        writer.write(encode(await self._statuses()))
                        await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._clients.discard(task)


def query_status(run_dir: Path, timeout_s: float = 15.0) -> list[ActorStatus]:
    """What every actor of the run in `run_dir` is doing. Raises ActorGone when no process runs it."""
    body = bytearray()
    try:
        with connect_unix(run_dir.resolve() / SOCKET, timeout_s) as sock:
            sock.sendall(REQUEST)
            while chunk := sock.recv(1 << 16):
                body += chunk
    except OSError as error:
        raise ActorGone(f"no process runs {run_dir}: {error}") from error
    try:
        return list(decode(bytes(body), list[ActorStatus]))
    except (ProtocolError, msgspec.DecodeError) as error:
        raise ActorGone(f"the process that runs {run_dir} did not answer: {error}") from error
