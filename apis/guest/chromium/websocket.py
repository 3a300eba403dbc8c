"""A WebSocket to a server on this machine, as its client: RFC 6455, text messages only, no extensions.

Invariant: no call lasts beyond the moment it is given, and no message longer than `MESSAGE_MAX` bytes is kept. After
an error the connection is closed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import time

HOST = "127.0.0.1"
MESSAGE_MAX = 16 << 20
HEAD_MAX = 16_384
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_CONTINUED, _TEXT, _CLOSE, _PING, _PONG = 0, 1, 8, 9, 10


class Closed(OSError):  # noqa: N818 - as the interpreter names its own
    """The other end is gone, or says what no WebSocket server says."""


class WebSocket:
    """One connection. Every method takes `until`, a moment of `time.monotonic`, and raises TimeoutError then."""

    def __init__(self, port: int, path: str, until: float) -> None:
        """Connect and agree to talk WebSocket. Raises OSError (Closed, TimeoutError)."""
        self._socket = socket.create_connection((HOST, port), timeout=_left(until))
        self._unread = bytearray()
        self._begun = b""  # of a message whose last frame has not come yet
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open(port, path, until)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()

    def send(self, text: str, until: float) -> None:
        """Send a message. Raises OSError."""
        self._send(_TEXT, text.encode(), until)

    def receive(self, until: float) -> str:
        """The next message. Raises OSError; at a TimeoutError nothing is lost."""
        while True:
            final, kind, payload = self._frame(until)
            if kind == _PING:
                self._send(_PONG, payload, until)
            elif kind == _CLOSE:
                raise Closed("the server closed the connection")
            elif kind in (_TEXT, _CONTINUED):
                self._begun += payload
                if len(self._begun) > MESSAGE_MAX:
                    raise Closed(f"a message of more than {MESSAGE_MAX} bytes")
                if final:
                    message, self._begun = self._begun, b""
                    return message.decode()

    def _open(self, port: int, path: str, until: float) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1", f"Host: {HOST}:{port}", "Upgrade: websocket", "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", "",
        )  # fmt: skip
        self._socket.sendall("\r\n".join(lines).encode())
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            if len(self._unread) > HEAD_MAX:
                raise Closed("no answer of a WebSocket server")
            self._read(until)
        head = self._unread[:end].decode("latin-1").split("\r\n")
        del self._unread[: end + 4]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        accepted = base64.b64encode(hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()
        if " 101 " not in head[0] + " " or fields.get("sec-websocket-accept") != accepted:
            raise Closed(f"no WebSocket: {head[0][:80]}")

    def _frame(self, until: float) -> tuple[bool, int, bytes]:
        """Whether a frame ends its message, its kind and what it carries."""
        while (size := self._head()) is None:
            self._read(until)
        start, length = size
        if length > MESSAGE_MAX:
            raise Closed(f"a frame of {length} bytes")
        while len(self._unread) < start + length:
            self._read(until)
        first = self._unread[0]
        payload = bytes(self._unread[start : start + length])
        del self._unread[: start + length]
        return bool(first & 0x80), first & 0x0F, payload

    def _head(self) -> tuple[int, int] | None:
        """Where the first frame's payload begins and how long it is; None while its head is not complete."""
        data = self._unread
        if len(data) < 2:
            return None
        if data[1] & 0x80:
            raise Closed("a server's frames are not masked")
        length = data[1]
        if length < 126:
            return 2, length
        width = 2 if length == 126 else 8
        if len(data) < 2 + width:
            return None
        return 2 + width, int.from_bytes(data[2 : 2 + width], "big")

    def _send(self, kind: int, payload: bytes, until: float) -> None:
        mask = os.urandom(4)
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)
        repeated = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(payload, "big") ^ repeated).to_bytes(length, "big")
        self._socket.settimeout(_left(until))
        self._socket.sendall(head + mask + masked)

    def _read(self, until: float) -> None:
        self._socket.settimeout(_left(until))
        piece = self._socket.recv(1 << 16)
        if not piece:
            raise Closed("the server is gone")
        self._unread += piece


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left
