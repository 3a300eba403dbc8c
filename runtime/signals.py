"""Ctrl-C, and a terminal that is gone.

Invariant: the first SIGINT, SIGTERM or SIGHUP asks for a clean stop, and a later one ends the process at once. What
comes within a second of the first is the same request: a terminal and a launcher may both send it. A SIGHUP that is
ignored from outside (`nohup`) stays so. An ignored SIGINT is heeded: shells ignore it for what they start in the
background. Child hosts die with this process by the kernel's parent-death signal.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
TOGETHER_S = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that the first signal sets; inside the block signals do nothing else. Needs a running loop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    first_at = 0.0

    def received(number: int) -> None:
        nonlocal first_at
        if not event.is_set():
            first_at = loop.time()
            event.set()
        elif loop.time() - first_at > TOGETHER_S:
            os._exit(128 + number)

    hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    heeded = [number for number in SIGNALS if number != signal.SIGHUP or hangup]
    for number in heeded:
        loop.add_signal_handler(number, received, number)
    try:
        yield event
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; exit now when it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
