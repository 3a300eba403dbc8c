"""Chromium's DevTools protocol: JSON messages over a WebSocket, by the library websocket-client.

Invariant: nothing here lasts beyond the moment it is given. A reply is matched to its command by number. The newest
`EVENTS_MAX` events that come in between are kept until they are asked for. No message longer than `MESSAGE_MAX` bytes
is kept, and after an error the connection is closed.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket
from guest import Refused

HOST = "127.0.0.1"
PORT_FILE = "DevToolsActivePort"
MESSAGE_MAX = 16 << 20
HEAD_MAX = 16_384


class Closed(OSError):  # noqa: N818 - as the interpreter names its own
    """The other end is gone, or says what no WebSocket server says."""


class _Socket:
    """A socket each of whose calls ends by `until`, and of which at most `room` bytes more are read."""

    def __init__(self, port: int, until: float) -> None:
        self.until, self.room = until, HEAD_MAX
        self._socket = socket.create_connection((HOST, port), timeout=left(until))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def recv(self, size: int) -> bytes:
        self._socket.settimeout(left(self.until))
        data = self._socket.recv(size)
        self.room -= len(data)
        if self.room < 0:
            raise Closed("more bytes than a message may have")
        return data

    def send(self, data: bytes) -> int:
        self._socket.settimeout(left(self.until))
        return self._socket.send(data)


@contextmanager
def _translated(before: str = "") -> Iterator[None]:
    """Raise the library's errors as OSError."""
    try:
        yield
    except websocket.WebSocketTimeoutException as error:
        raise TimeoutError(str(error)) from error
    except (websocket.WebSocketException, Closed, ValueError, IndexError) as error:
        raise Closed(f"{before}{error}"[:200]) from error


def left(until: float) -> float:
    """Seconds until then. Raises TimeoutError."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


EVENTS_MAX = 500
Event = dict[str, Any]


class DevTools:
    """One connection: commands and events. `until` is a moment of `time.monotonic`; TimeoutError is raised then."""

    def __init__(self, port: int, path: str, until: float) -> None:
        """Connect and agree to talk WebSocket. Raises OSError (Closed, TimeoutError)."""
        self._number = 0
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._socket = _Socket(port, until)
        self._client = websocket.WebSocket()
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

    @classmethod
    def of_profile(cls, folder: str, until: float) -> DevTools:
        """Connect to the browser of a profile below HOME. Raises OSError, and ValueError for a file that is not its."""
        port, path = Path(os.environ["HOME"], folder, PORT_FILE).read_text()[:200].split()
        return cls(int(port), path, until)

    def close(self) -> None:
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

    def ask(self, method: str, params: dict[str, Any], until: float, session: str = "") -> dict[str, Any]:
        """Carry out a command; its result. Raises OSError, and Refused where the browser says no."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self.send(json.dumps(message), until)
        while True:
            got = self._receive(until)
            if got.get("id") == number:
                if "error" in got:
                    text = str(got["error"].get("message", ""))[:200]
                    raise Refused("tool_failed", f"Chromium refused {method}: {text}")
                return dict(got.get("result", {}))
            if "method" in got:
                self._events.append(got)

    def forget_events(self) -> None:
        """Wait for what happens from now on only."""
        self._events.clear()

    def event(self, wanted: Callable[[Event], bool], until: float) -> Event:
        """The first event, of those not asked for yet, that is wanted; others are kept. Raises OSError."""
        for event in self._events:
            if wanted(event):
                self._events.remove(event)
                return event
        while True:
            got = self._receive(until)
            if "method" in got:
                if wanted(got):
                    return got
                self._events.append(got)

    def _receive(self, until: float) -> dict[str, Any]:
        try:
            got = json.loads(self.receive(until))
        except ValueError as error:
            raise Closed("the browser does not speak JSON") from error
        if not isinstance(got, dict):
            raise Closed("the browser does not speak the DevTools protocol")
        return got


def soon(seconds: float) -> float:
    """The moment in so many seconds."""
    return time.monotonic() + seconds
