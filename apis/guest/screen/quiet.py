"""When a desktop has come to rest after an action.

Invariant: the wait is bounded by the caller's deadline and is never a fixed pause. It ends when three things hold:

- For `quiet_ms` no pixel changed.
- For `quiet_ms` no other program of the desktop used the processor or stood in line for it, nor did the X server stand
  in line.
- No toolkit is known to wait by the clock before it acts.

A program that starts, or works before it draws, changes no pixel for a while: so the processor is looked at. The X
server's damage reports are heard because a drawn change ends the wait for its cause.
"""

from __future__ import annotations

import time

from guest.screen.screenlink import ScreenLink
from guest.screen.work import Work

LOOK_S = 0.01
IDLE_NS = 400_000  # processor time within one look that a resting desktop may use


def settle(link: ScreenLink, work: Work, timeout_s: float, quiet_s: float) -> bool:
    """Wait for rest; whether it came before the deadline."""
    until = time.monotonic() + timeout_s
    link.pause(0.0)
    rest_since = time.monotonic()
    used = work.used()
    while True:
        link.wait_change(LOOK_S)
        now = time.monotonic()
        rest_since = max(rest_since, link.changed_s)
        before, used = used, work.used()
        if abs(used - before) > IDLE_NS or work.running():  # states, a file a thread, only where the sum says nothing
            rest_since = time.monotonic()
        elif now - rest_since >= quiet_s and not link.expecting():
            return True
        if now >= until:
            return False
