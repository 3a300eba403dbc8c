"""Thunderbird by Marionette: what generated functions are given.

It takes one session at a time. So each script has a session of its own, which costs some 30 ms.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

CALL_S = 6.0
ANSWER_MOST = 1 << 20


class App:
    """Thunderbird, which listens on a port of this desktop. Methods raise ValueError with what a model can read."""

    def __init__(self, port: str) -> None:
        self._at = "127.0.0.1", int(port)
        self.home = Path(os.environ["HOME"])

    def script(self, script: str, *arguments: Any) -> Any:
        """What a body of JavaScript returns, run with the program's own rights; it gets `arguments`."""
        given = {"script": script, "args": list(arguments), "sandbox": "system"}
        try:
            with socket.create_connection(self._at, CALL_S) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _read(link)  # its greeting
                _asked(link, "WebDriver:NewSession", {})
                _asked(link, "Marionette:SetContext", {"value": "chrome"})
                try:
                    return _asked(link, "WebDriver:ExecuteScript", given)["value"]
                finally:
                    _asked(link, "WebDriver:DeleteSession", {})
        except (OSError, KeyError, TypeError) as error:
            raise ValueError(f"Thunderbird does not answer: {error}") from None


def _asked(link: socket.socket, command: str, given: dict[str, Any]) -> Any:
    text = json.dumps([0, 1, command, given]).encode()
    link.sendall(b"%d:%s" % (len(text), text))
    _, _, error, result = _read(link)
    if error:
        raise ValueError(f"Thunderbird refuses: {str(error.get('message'))[:300]}")
    return result


def _read(link: socket.socket) -> Any:
    size, got = b"", b""
    while not size.endswith(b":"):
        piece = link.recv(1)
        if not piece or len(size) > 8:
            raise OSError("it hung up")
        size += piece
    while len(got) < min(int(size[:-1]), ANSWER_MOST):
        piece = link.recv(int(size[:-1]) - len(got))
        if not piece:
            raise OSError("it hung up")
        got += piece
    return json.loads(got)
