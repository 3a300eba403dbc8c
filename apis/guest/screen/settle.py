"""When a desktop has come to rest after an action.

Invariant: the wait is bounded by the caller's deadline. For `quiet_ms` no pixel changed, no other program used or
waited for the processor, the X server did not wait for it, and no program waited for the agent's copy of the clipboard.
No toolkit is known to wait for a timer. A program that starts, or computes before it draws, changes no pixel for a
while, so use of the processor counts, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from guest.screen.screenlink import ScreenLink

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
    """How much processor time the desktop's programs have used. `serving`: whether one waits for the agent itself."""

    def __init__(self, serving: Callable[[], bool] = bool) -> None:
        self._serving = serving
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
        """Whether a thread of a program runs or waits for the processor, the disk or the agent now."""
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
        return self._serving()


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
