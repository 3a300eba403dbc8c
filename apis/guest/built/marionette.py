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
            with socket.create_connection(self._at, CALL_S) as link, link.makefile("rwb") as pipe:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _read(pipe)  # its greeting
                _asked(pipe, "WebDriver:NewSession", {})
                _asked(pipe, "Marionette:SetContext", {"value": "chrome"})
                try:
                    return _asked(pipe, "WebDriver:ExecuteScript", given)["value"]
                finally:
                    _asked(pipe, "WebDriver:DeleteSession", {})
        except (OSError, LookupError, TypeError) as error:
            raise ValueError(f"Thunderbird does not answer: {error}") from None


def _asked(pipe: Any, command: str, given: dict[str, Any]) -> Any:
    text = json.dumps([0, 1, command, given]).encode()
    pipe.write(b"%d:%s" % (len(text), text))
    pipe.flush()
    _, _, error, result = _read(pipe)
    if error:
        raise ValueError(f"Thunderbird refuses: {str(error.get('message'))[:300]}")
    return result


def _read(pipe: Any) -> Any:
    """One frame: its length, a colon, and JSON."""
    size = b""
    while (digit := pipe.read(1)).isdigit() and len(size) < 8:
        size += digit
    if digit != b":":
        raise OSError("it hung up")
    return json.loads(pipe.read(min(int(size), ANSWER_MOST)))
