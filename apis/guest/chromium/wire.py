"""Text messages to and from a WebSocket server on this machine, by the library websocket-client.

Invariant: no call lasts beyond the moment it is given, and no message longer than `MESSAGE_MAX` bytes is kept. After
an error the connection is closed.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import websocket

HOST = "127.0.0.1"
MESSAGE_MAX = 16 << 20
HEAD_MAX = 16_384


class Closed(OSError):  # noqa: N818 - as the interpreter names its own
    """The other end is gone, or says what no WebSocket server says."""


class _Socket:
    """A socket each of whose calls ends by `until`, and of which at most `room` bytes more are read."""

    def __init__(self, port: int, until: float) -> None:
        self.until, self.room = until, HEAD_MAX
        self._socket = socket.create_connection((HOST, port), timeout=_left(until))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        self._socket.settimeout(_left(self.until))
        data = self._socket.recv(size)
        self.room -= len(data)
        if self.room < 0:
            raise Closed("more bytes than a message may have")
        return data

    def send(self, data: bytes) -> int:
        self._socket.settimeout(_left(self.until))
        return self._socket.send(data)


class _Client(websocket.WebSocket):
    def recv_frame(self) -> Any:
        frame = super().recv_frame()
        known = vars(frame)  # the library has renamed it
        if known.get("mask") or known.get("mask_value"):
            raise Closed("a server's frames are not masked")
        return frame


class WebSocket:
    """One connection. Every method takes `until`, a moment of `time.monotonic`, and raises TimeoutError then."""

    def __init__(self, port: int, path: str, until: float) -> None:
        """Connect and agree to talk WebSocket. Raises OSError (Closed, TimeoutError)."""
        self._socket = _Socket(port, until)
        self._client = _Client()
        try:
            with _translated("no WebSocket: "):
                options = {"socket": self._socket, "suppress_origin": True, "redirect_limit": 0}
                self._client.connect(f"ws://{HOST}:{port}{path}", **options)
            if self._client.getstatus() != 101:
                raise Closed("no WebSocket: it leads elsewhere")
        except BaseException:
            self.close()
            raise
        self._socket.room = MESSAGE_MAX

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()

    def send(self, text: str, until: float) -> None:
        """Send a message. Raises OSError."""
        self._socket.until = until
        with _translated():
            self._client.send(text)

    def receive(self, until: float) -> str:
        """The next message. Raises OSError; at a TimeoutError nothing is lost."""
        self._socket.until = until
        with _translated():
            kind, data = self._client.recv_data()
            self._socket.room = MESSAGE_MAX
            if kind != websocket.ABNF.OPCODE_TEXT:
                raise Closed("the server closed the connection")
            return bytes(data).decode()


@contextmanager
def _translated(before: str = "") -> Iterator[None]:
    """Raise the library's errors as OSError."""
    try:
        yield
    except websocket.WebSocketTimeoutException as error:
        raise TimeoutError(str(error)) from error
    except (websocket.WebSocketException, Closed, ValueError, IndexError) as error:
        raise Closed(f"{before}{error}"[:200]) from error


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left
