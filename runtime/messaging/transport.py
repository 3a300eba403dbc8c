"""Frames between hosts over one asyncio stream.

Invariant: a frame is a 4-byte big-endian length and a MessagePack value of a known type. Both sides refuse a frame
longer than `MAX_FRAME_BYTES`. What a slow peer has not read is bounded, and beyond the bound the link closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Generic, TypeVar

import msgspec

from runtime.errors import HostLost, ProtocolError
from runtime.messaging.codec import encode

MAX_FRAME_BYTES = 64 << 20
MAX_UNSENT_BYTES = 256 << 20
CLOSE_S = 5.0

F = TypeVar("F")


class Link(Generic[F]):
    """One connection that carries frames of type `F` (a tagged union)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame_type: object) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(frame_type)

    @classmethod
    async def of_socket(cls, sock: socket.socket, frame_type: object) -> Link[F]:
        """A link over a connected Unix socket."""
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        return cls(reader, writer, frame_type)

    async def receive(self) -> F | None:
        """The next frame, None at the end of the stream. Idle links wait here.

        Raises ProtocolError, and HostLost where the peer's machine can't be reached: that is not the peer's end.
        """
        try:
            head = await self._reader.readexactly(4)
            size = int.from_bytes(head, "big")
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes; {MAX_FRAME_BYTES} is the most")
            frame: F = self._decoder.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except OSError as error:
            raise HostLost(f"the link broke: {error}") from error
        except msgspec.DecodeError as error:
            raise ProtocolError(f"a frame that is none of ours: {error}") from error
        return frame

    def write(self, frame: F) -> None:
        """Queue `frame` without waiting. Raises HostLost when the peer is gone or has stopped reading."""
        body = encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {len(body)} bytes; {MAX_FRAME_BYTES} is the most")
        if self._writer.is_closing():
            raise HostLost("the link is closed")
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._writer.transport.abort()
            raise HostLost(f"the peer left {MAX_UNSENT_BYTES} bytes unread")
        self._writer.writelines((len(body).to_bytes(4, "big"), body))

    async def send(self, frame: F, timeout_s: float) -> None:
        """Queue `frame` and wait until the peer keeps up again, at most `timeout_s`. Raises HostLost."""
        self.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
        except TimeoutError as error:
            raise HostLost(f"the peer did not read for {timeout_s:.3g} s") from error
        except OSError as error:
            raise HostLost(f"the link broke: {error}") from error

    def abort(self) -> None:
        """Close at once, without waiting: `receive` returns None then."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close; what is unsent is dropped."""
        self.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
