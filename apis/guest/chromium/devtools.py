"""Chromium's DevTools protocol over one connection to the browser as a whole, with a session for each tab looked into.

Invariant: nothing here lasts beyond the moment it is given. A reply is matched to its command by number. The newest
`EVENTS_MAX` events that come in between are kept until they are asked for.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from guest.chromium.wire import Closed, WebSocket
from guest.errors import Refused

EVENTS_MAX = 500
Event = dict[str, Any]


class DevTools:
    """Commands and events."""

    def __init__(self, port: int, path: str, until: float) -> None:
        """Connect. Raises OSError."""
        self._socket = WebSocket(port, path, until)
        self._number = 0
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)

    def close(self) -> None:
        """Let go of the connection."""
        self._socket.close()

    def ask(self, method: str, params: dict[str, Any], until: float, session: str = "") -> dict[str, Any]:
        """Carry out a command; its result. Raises OSError, and Refused where the browser says no."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._socket.send(json.dumps(message), until)
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
            got = json.loads(self._socket.receive(until))
        except ValueError as error:
            raise Closed("the browser does not speak JSON") from error
        if not isinstance(got, dict):
            raise Closed("the browser does not speak the DevTools protocol")
        return got


def soon(seconds: float) -> float:
    """The moment in so many seconds."""
    return time.monotonic() + seconds
