"""Processor time, of this process and of its machine.

Invariant: all only grow, and are counted by the kernel.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil


def boot_id() -> str:
    """Names this boot of this machine, from which its monotonic clock and `machine_s` count."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def process_s() -> float:
    """Seconds of processor time, user and system, that this process has used. Its children's are not counted."""
    return time.process_time()


class Below:
    """Adds up the processor time of the processes below this one. What one used after the last look is not seen."""

    def __init__(self) -> None:
        self._seen: dict[psutil.Process, float] = {}  # pruned to the living at every look
        self._sum_s = 0.0

    def read_s(self) -> float:
        """Seconds so far, of the living and the dead. Looks through all processes of the machine."""
        alive: dict[psutil.Process, float] = {}
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                alive[process] = sum(process.cpu_times()[:2])
                self._sum_s += alive[process] - self._seen.get(process, 0.0)
        self._seen = alive
        return self._sum_s


def machine_s() -> float:
    """Seconds of processor time that the machine has spent on anything since its boot, over all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
