"""A host that its main host may have given up stops by itself.

Invariant: a host that has had no heartbeat for `limit_s` stops, and has ended `grace_s` later, even if its loop stands
still. The main host waits for as long before it begins another life of that host elsewhere.
"""

from __future__ import annotations

import os
import signal
import threading
import time

STOP_S = 15.0  # that a host has to stop by itself; then it is killed
MARGIN_S = 5.0  # for a heartbeat that was under way when the machine was cut off


class DeadMan:
    """Counts from the last heartbeat. With a limit of 0 nothing is counted: the parent is on this machine."""

    def __init__(self, limit_s: float, grace_s: float) -> None:
        self._limit_s, self._grace_s = limit_s, grace_s
        self._fed = time.monotonic()
        self._rest = threading.Event()
        if limit_s:
            threading.Thread(target=self._watch, name="dead man", daemon=True).start()

    def fed(self) -> None:
        """A heartbeat has come."""
        self._fed = time.monotonic()

    def rest(self) -> None:
        """Count no more: the host was told to stop."""
        self._rest.set()

    def left_s(self) -> float | None:
        """Seconds until the host has to stop, None where nothing is counted."""
        return max(0.0, self._fed + self._limit_s - time.monotonic()) if self._limit_s else None

    def _watch(self) -> None:
        while (left_s := self._fed + self._limit_s + self._grace_s - time.monotonic()) > 0:
            if self._rest.wait(left_s):
                return
        os.killpg(0, signal.SIGKILL)  # the host leads a group of its own
