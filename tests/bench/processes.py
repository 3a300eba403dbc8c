"""Where a desktop's processor time and memory go, by process, as the host's kernel counts them.

Invariant: a desktop's whole time is its control group's. The part that no living thread accounts for is `other`, so the
parts add up to the whole.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.desktop.provider import Outside
from actors.desktop.providers.sandbox import cgroups
from actors.desktop.providers.sandbox.hierarchies import UNIFIED

KINDS = ("agent", "X server", "application", "sshd", "other")
_SESSION = ("openbox", "dbus-daemon", "at-spi-bus-laun", "at-spi2-registr", "bwrap", "dconf-service", "python3")


def kind_of(name: str, words: list[str]) -> str:
    """Which of `KINDS` a guest process is, by its kernel name and command line."""
    if name == "Xvfb":
        return "X server"
    if name == "sshd":
        return "sshd"
    if name != "bwrap" and "agent" in words and any(word.endswith("/guest") for word in words):
        return "agent"  # a sandbox's own command line names both as well
    return "other" if name in _SESSION else "application"


class Members:
    """The processes of one desktop, with their kinds."""

    def __init__(self, outside: Outside) -> None:
        self._groups = outside.cgroups
        self._kinds: dict[int, str] = {}  # as many as the desktop may have processes

    def pids(self) -> dict[int, str]:
        """The kinds of all that live now."""
        living = cgroups.members(self._groups)
        for pid in living - self._kinds.keys():
            try:
                name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:  # it has just ended
                continue
            self._kinds[pid] = kind_of(name, words)
        self._kinds = {pid: kind for pid, kind in self._kinds.items() if pid in living}
        return dict(self._kinds)

    def cpu_ms(self) -> dict[str, float]:
        """Processor milliseconds since boot, of the living threads by kind, and in `all` of everything."""
        spent = dict.fromkeys(KINDS, 0.0)
        for pid, kind in self.pids().items():
            spent[kind] += _run_ns(pid) / 1e6
        return {**spent, "all": 1e3 * cgroups.cpu_s(self._groups)}

    def pss_bytes(self) -> int:
        """Memory of all processes, shared pages counted by their share."""
        return sum(_pss(pid) for pid in self.pids())

    def charged_bytes(self) -> int:
        """Memory that the control group is charged, files in memory included; 0 where there is none."""
        for folder, file in (("memory", "memory.usage_in_bytes"), (UNIFIED, "memory.current")):
            if folder in self._groups:
                return int(Path(self._groups[folder], file).read_text())
        return 0


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Milliseconds between two readings by kind, what ended threads took as `other`."""
    parts = {kind: max(0.0, after[kind] - before[kind]) for kind in KINDS}
    parts["other"] += max(0.0, after["all"] - before["all"] - sum(parts.values()))
    return parts


def _run_ns(pid: int) -> int:
    """Nanoseconds that the living threads of a process have run."""
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    except OSError:  # it has just ended; the group still has its time
        return total
    return total


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
