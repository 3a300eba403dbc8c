"""Processor time, of this process and of its machine.

Invariant: both only grow, and are counted by the kernel.
"""

from __future__ import annotations

import time

import psutil


def process_s() -> float:
    """Seconds of processor time, user and system, that this process has used. Its children's are not counted."""
    return time.process_time()


def machine_s() -> float:
    """Seconds of processor time that the machine has spent on anything since its boot, over all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
