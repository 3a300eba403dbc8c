"""GIMP by its Script-Fu server: what generated functions are given."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

CALL_S = 6.0


class App:
    """GIMP, whose server listens on a port of this desktop. Methods raise ValueError with what a model can read."""

    def __init__(self, port: str) -> None:
        self._at = "127.0.0.1", int(port)
        self.home = Path(os.environ["HOME"])

    def script(self, script: str) -> str:
        """What one expression of Script-Fu gives, as text."""
        code = script.encode()
        try:
            with socket.create_connection(self._at, CALL_S) as link, link.makefile("rb") as answer:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.sendall(b"G" + struct.pack(">H", len(code)) + code)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # the text waits for the head's receipt
                mark, failed, size = struct.unpack(">cBH", answer.read(4))
                said = struct.unpack(f"{size}s", answer.read(size))[0].decode("utf-8", "replace").rstrip("\0")
        except (OSError, struct.error) as error:
            raise ValueError(f"GIMP does not answer: {error}") from None
        if mark != b"G" or failed:
            raise ValueError(f"GIMP refuses: {said[:300]}")
        return said

    def number(self, script: str) -> float:
        """The first number that an expression gives, as of most procedures."""
        return float(self.script(f"(car {script})"))

    def image(self) -> int:
        """The number of the newest open image."""
        numbers = self.script("(vector->list (cadr (gimp-image-list)))").strip("()").split()
        if not numbers:
            raise ValueError("no image is open")
        return max(map(int, numbers))

    def layer(self) -> int:
        """The number of the active layer of that image."""
        return int(self.number(f"(gimp-image-get-active-layer {self.image()})"))

    def show(self) -> None:
        """Draw what has changed."""
        self.script("(gimp-displays-flush)")

    def text(self, value: str) -> str:
        """A text as Script-Fu writes it."""
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def path(self, path: str) -> Path:
        """A path below the home folder as an absolute one."""
        full = (self.home / path.removeprefix("~/")).resolve()
        if not full.is_relative_to(self.home.resolve()):
            raise ValueError("the file is not in the home folder")
        return full

    def pixel(self, x: int, y: int) -> str:
        """The colour of a pixel of the active layer, like #20a0ff."""
        got = self.script(f"(vector->list (cadr (gimp-drawable-get-pixel {self.layer()} {x} {y})))")
        values = got.strip("()").split()
        red, green, blue = [int(value) for value in (*values, *values, *values)[:3]]
        return f"#{red:02x}{green:02x}{blue:02x}"
