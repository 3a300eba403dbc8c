"""Whether a process that takes long goes on: it writes, or it computes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_BUSY = 0.05  # processors: a process that waits uses less


class StartProgress:
    """Since when a process neither wrote nor computed. Pure."""

    def __init__(self, now: float) -> None:
        self._moved, self._written, self._cpu_s = now, 0, 0.0

    def silent_s(self, written: int, cpu_s: float, now: float) -> float:
        """Seconds, where it has `written` bytes and used `cpu_s` seconds of processors in all."""
        if written > self._written or cpu_s - self._cpu_s > _BUSY * (now - self._moved):
            self._moved, self._written, self._cpu_s = now, written, cpu_s
        return now - self._moved


def session_cpu_s(session: int) -> float:
    """Seconds of processors that the processes of a session have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13])) if int(fields[3]) == session else 0
    return ticks / os.sysconf("SC_CLK_TCK")
