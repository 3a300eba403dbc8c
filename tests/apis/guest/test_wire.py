"""The WebSocket client against a server that this test writes out frame by frame."""

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apis.guest.chromium.devtools import MESSAGE_MAX, Closed, DevTools

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CONTINUED, CLOSE, PING, PONG = 1, 0, 8, 9, 10


def frame(kind: int, payload: bytes, final: bool = True) -> bytes:
    """As a server sends it: not masked."""
    length = len(payload)
    if length < 126:
        size = bytes([length])
    elif length < 1 << 16:
        size = b"\x7e" + length.to_bytes(2, "big")
    else:
        size = b"\x7f" + length.to_bytes(8, "big")
    return bytes([kind | (0x80 if final else 0)]) + size + payload


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.file: Any = connection.makefile("rwb")

    def greet(self, accept: str | None = None) -> str:
        """Answer the client's request, whose path is returned."""
        request = self.file.readline().decode()
        fields = {}
        while line := self.file.readline().decode().strip():
            name, _, value = line.partition(": ")
            fields[name.lower()] = value
        key = hashlib.sha1((fields["sec-websocket-key"] + GUID).encode()).digest()
        told = accept or base64.b64encode(key).decode()
        head = "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.say(f"{head}Sec-WebSocket-Accept: {told}\r\n\r\n".encode())
        return request.split()[1]

    def say(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()

    def hear(self) -> tuple[int, bytes]:
        """The next frame: its kind and what it carries, unmasked."""
        first, second = self.file.read(2)
        assert second & 0x80
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
        mask, data = self.file.read(4), self.file.read(length)
        return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@contextmanager
def server(serve: Callable[[Peer], None]) -> Iterator[int]:
    """A port on which one connection is served; what `serve` finds wrong fails the test."""
    problems: list[BaseException] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    serve(Peer(connection))
            except BaseException as error:  # noqa: BLE001 - told below
                problems.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(20)
        assert not thread.is_alive()
    assert problems == []


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(max_size=300) | st.sampled_from(["x" * 126, "ü" * 40_000]), min_size=1, max_size=4))
def test_messages_come_back_as_they_were_sent(messages: list[str]) -> None:
    def serve(peer: Peer) -> None:
        assert peer.greet() == "/devtools/browser/1"
        for _ in messages:
            kind, data = peer.hear()
            assert kind == TEXT
            half = len(data) // 2
            peer.say(frame(TEXT, data[:half], final=False) + frame(PING, b"!") + frame(CONTINUED, data[half:]))
            assert peer.hear() == (PONG, b"!")

    with server(serve) as port:
        made = DevTools(port, "/devtools/browser/1", soon())
        for message in messages:
            made.send(message, soon())
            assert made.receive(soon()) == message
        made.close()


def test_a_deadline_in_the_middle_of_a_message_loses_nothing() -> None:
    go_on = threading.Event()

    def serve(peer: Peer) -> None:
        peer.greet()
        peer.say(frame(TEXT, b"one, ", final=False) + frame(CONTINUED, b"two")[:3])
        assert go_on.wait(20)
        peer.say(frame(CONTINUED, b"two")[3:])

    with server(serve) as port:
        made = DevTools(port, "/", soon())
        with pytest.raises(TimeoutError):
            made.receive(soon(0.1))
        go_on.set()
        assert made.receive(soon()) == "one, two"
        made.close()


@pytest.mark.parametrize(
    "said",
    [
        frame(CLOSE, b""),
        b"",
        bytes([0x81, 0x7F]) + (MESSAGE_MAX + 1).to_bytes(8, "big"),
    ],
    ids=["closed", "gone", "too long"],
)
def test_what_no_server_says_ends_it(said: bytes) -> None:
    def serve(peer: Peer) -> None:
        peer.greet()
        peer.say(said)

    with server(serve) as port:
        made = DevTools(port, "/", soon())
        with pytest.raises(Closed):
            made.receive(soon())
        made.close()


def test_another_servers_answer_is_refused() -> None:
    with server(lambda peer: peer.greet(accept="wrong") and None) as port, pytest.raises(Closed, match="no WebSocket"):
        DevTools(port, "/", soon())
    with server(lambda peer: peer.say(b"HTTP/1.1 403 Forbidden\r\n\r\n")) as port, pytest.raises(Closed, match="403"):
        DevTools(port, "/", soon())
    elsewhere = b"HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\n\r\n"
    with server(lambda peer: peer.say(elsewhere)) as port, pytest.raises(Closed, match="no WebSocket"):
        DevTools(port, "/", soon())
    with server(lambda peer: peer.say(b"x" * 40_000)) as port, pytest.raises(Closed, match="no WebSocket"):
        DevTools(port, "/", soon())
