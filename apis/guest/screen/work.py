"""How much processor time the desktop's programs have used, and whether one of them waits for more.

Invariant: asks the kernel only. The time used is one question a program, however many threads it has; their states are
a file each, so they are read only where the time says nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_OURS = {b"", b"sshd", b"bwrap"}
_BUSY = (b"R", b"D")
_SERVER = b"Xvfb"  # its work for the agent is no unrest, but a program that waits for its answer seems to rest


def _stat(folder: str) -> list[bytes]:
    """The fields of a process's or thread's `stat` after its name: the state first, the count of threads at 17."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _clock(pid: int) -> int:
    """The id of the clock of all that a process has used, threads that have ended included (CPUCLOCK_SCHED)."""
    return (~pid << 3) | 2


class Work:
    """How much processor time the desktop's programs have used."""

    def __init__(self) -> None:
        self._skip = {os.getpid()}
        self._names: dict[int, bytes] = {}

    def _name(self, pid: int) -> bytes:
        if pid not in self._names:
            try:
                self._names[pid] = Path(f"/proc/{pid}/comm").read_bytes().strip()
            except OSError:
                return b""
        return self._names[pid]

    def _programs(self) -> list[tuple[int, bytes]]:
        """Process ids and names of the desktop's programs; the X server is one."""
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return [(pid, name) for pid in pids if pid not in self._skip and (name := self._name(pid)) not in _OURS]

    def used(self) -> int:
        """Nanoseconds used so far."""
        used = 0
        for pid, name in self._programs():
            if name != _SERVER:
                try:
                    used += time.clock_gettime_ns(_clock(pid))
                except OSError:  # it ended meanwhile
                    self._names.pop(pid, None)
        return used

    def running(self) -> bool:
        """Whether a thread of a program runs or waits for the processor or the disk now; it may have used none yet."""
        for pid, _ in self._programs():
            try:
                main = _stat(f"/proc/{pid}")
                if main[0] in _BUSY:
                    return True
                if int(main[17]) > 1:
                    for thread in os.listdir(f"/proc/{pid}/task"):
                        if int(thread) != pid and _stat(f"/proc/{pid}/task/{thread}")[0] in _BUSY:
                            return True
            except (OSError, IndexError):  # it ended meanwhile
                self._names.pop(pid, None)
        return False
