"""Processes in control groups, their counters and the freezer, on version 1 and version 2.

Invariant: a group that is gone holds nothing and has counted nothing. Asking it is no error.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

from actors.desktop.providers.sandbox.hierarchies import UNIFIED

FREEZE_S = 5.0
NEARLY_BYTES = 2 << 20  # of a limit: what a process may ask for at once


def enter(folders: dict[str, str], pids: list[int]) -> list[str]:
    """Move processes into the groups; warnings for what did not work."""
    warnings = []
    for controller, folder in folders.items():
        for pid in pids:
            try:
                Path(folder, "cgroup.procs").write_text(str(pid))
            except OSError as error:
                warnings.append(f"cgroup {controller}: {error.strerror}")
                break
    return warnings


def members(folders: dict[str, str]) -> set[int]:
    """Processes in any of the groups."""
    found: set[int] = set()
    for folder in folders.values():
        try:
            found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
        except FileNotFoundError:
            continue
    return found


def number_of(folder: str | None, file: str, key: str = "") -> int:
    """A counter of a group: the whole file, or the value behind `key`; 0 where there is none."""
    if folder is None:
        return 0
    try:
        text = Path(folder, file).read_text()
    except OSError:
        return 0
    if not key:
        return int(text) if text.strip().isdigit() else 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), 0)


def processes_refused(folders: dict[str, str]) -> int:
    """Times that the groups could not have another process within their own limit."""
    return number_of(folders.get("pids"), "pids.events", "max") or number_of(folders.get(UNIFIED), "pids.events", "max")


def oom_kills(folders: dict[str, str]) -> int:
    """Processes of the groups that the kernel killed for memory."""
    return number_of(folders.get("memory"), "memory.oom_control", "oom_kill") or number_of(
        folders.get(UNIFIED), "memory.events", "oom_kill"
    )


def limit_hits(folders: dict[str, str]) -> int:
    """Times that the groups could not get memory within their own limit; once for all where the kernel counts none."""
    old = folders.get("memory")
    # Version 1 does not count what its limit of memory and swap together refused: it says how far they came.
    most, came = (number_of(old, f"memory.memsw.{name}_in_bytes") for name in ("limit", "max_usage"))
    hits = number_of(old, "memory.failcnt") + (0 < most <= came + NEARLY_BYTES)
    return hits or number_of(folders.get(UNIFIED), "memory.events", "oom")


def cpu_s(folders: dict[str, str]) -> float:
    """Processor seconds that the groups have used."""
    nanoseconds = number_of(folders.get("cpuacct"), "cpuacct.usage")
    return nanoseconds / 1e9 or number_of(folders.get(UNIFIED), "cpu.stat", "usage_usec") / 1e6


def can_freeze(folders: dict[str, str]) -> bool:
    """Whether the groups have a freezer."""
    return "freezer" in folders or UNIFIED in folders


def thaw(folders: dict[str, str]) -> None:
    """Let frozen processes run on, so that they can die. A group that is gone is no error."""
    for folder in folders.values():
        for file, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            try:
                with Path(folder, file).open("r+") as state:
                    state.write(value)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise


async def freeze(folders: dict[str, str]) -> bool:
    """Hold all processes of the groups; False when the kernel does not get there in time. Raises OSError."""
    if "freezer" in folders:
        file, wanted, done = Path(folders["freezer"], "freezer.state"), "FROZEN", "FROZEN"
        state = file
    else:
        file, wanted, done = Path(folders[UNIFIED], "cgroup.freeze"), "1", "frozen 1"
        state = Path(folders[UNIFIED], "cgroup.events")
    loop = asyncio.get_running_loop()
    until = loop.time() + FREEZE_S
    file.write_text(wanted)
    while done not in state.read_text():  # version 1 has no event for its end
        if loop.time() > until:
            return False
        await asyncio.sleep(0.002)
        if "freezer" in folders:
            file.write_text(wanted)  # a process that was just forking may need a second call
    return True
