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

import os
import time
from pathlib import Path

from guest.screen.screenlink import ScreenLink

LOOK_S = 0.01
IDLE_NS = 400_000  # processor time within one look that a resting desktop may use
_OURS = {b"", b"sshd", b"bwrap"}
_SERVER = b"Xvfb"  # its work for the agent is no unrest, but a program that waits for its answer seems to rest


def _stat(folder: str) -> list[bytes]:
    """The fields of a process's or thread's `stat` after its name: the state first, the count of threads at 17."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


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

    def total(self) -> tuple[int, int]:
        """Nanoseconds used so far, and how many programs run or wait for the processor now."""
        used = running = 0
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in self._skip or (name := self._name(int(entry))) in _OURS:
                continue
            try:
                threads = [f"/proc/{entry}"]
                if int(_stat(threads[0])[17]) > 1:
                    threads = [f"/proc/{entry}/task/{thread}" for thread in os.listdir(f"/proc/{entry}/task")]
                for thread in threads:
                    running += _stat(thread)[0] in (b"R", b"D")
                    if name == _SERVER:
                        continue
                    with open(f"{thread}/schedstat", "rb") as file:
                        used += int(file.read().split()[0])
            except (OSError, IndexError):  # it ended meanwhile
                self._names.pop(int(entry), None)
        return used, running


def settle(link: ScreenLink, work: Work, timeout_s: float, quiet_s: float) -> bool:
    """Wait for rest; whether it came before the deadline."""
    until = time.monotonic() + timeout_s
    link.pause(0.0)
    rest_since = time.monotonic()
    used, _ = work.total()
    while True:
        link.wait_change(LOOK_S)
        now = time.monotonic()
        rest_since = max(rest_since, link.changed_s)
        before, (used, running) = used, work.total()
        if running or abs(used - before) > IDLE_NS:
            rest_since = time.monotonic()
        elif now - rest_since >= quiet_s and not link.expecting():
            return True
        if now >= until:
            return False
