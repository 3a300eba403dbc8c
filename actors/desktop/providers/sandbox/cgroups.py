"""Resource limits and the freezer, on version 1 and version 2 control groups.

Invariant: a limit that the kernel does not allow becomes a warning of the desktop, never a failed boot; and every
folder made here is returned, so that it is removed with the desktop.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

from actors.desktop.faults import FaultCause, fault

MOUNTS = Path("/proc/self/mounts")
OWN = Path("/proc/self/cgroup")
FREEZE_S = 5.0
UNIFIED = "unified"
# "cpu" at its default share: else every session that a guest starts weighs as much as a whole desktop.
CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "freezer")
_V2 = ("memory", "pids", "cpu")


def _controller_roots() -> dict[str, Path]:
    """Where this process's own groups lie, by version 1 controller, and under "unified" for version 2."""
    mounts: dict[str, str] = {}
    for line in MOUNTS.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            mounts[UNIFIED] = where
        elif kind == "cgroup":
            mounts.update({name: where for name in options.split(",") if name in CONTROLLERS})
    roots: dict[str, Path] = {}
    for line in OWN.read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else [UNIFIED]:
            if name in mounts:
                own = Path(mounts[name] + path)
                roots[name] = own if own.is_dir() else Path(mounts[name])
    return roots


def places() -> list[Path]:
    """The folders in which this process makes desktops' groups."""
    roots = _controller_roots()
    unified = [roots[UNIFIED].parent, roots[UNIFIED]] if UNIFIED in roots else []
    return list(dict.fromkeys([root for name, root in roots.items() if name != UNIFIED] + unified))


def make(name: str, memory_bytes: int, processes: int) -> tuple[dict[str, str], list[str]]:
    """Folders for one desktop by controller, and warnings for what could not be had."""
    roots = _controller_roots()
    folders: dict[str, str] = {}
    warnings: list[str] = []
    limits = {"memory": ("memory.limit_in_bytes", memory_bytes), "pids": ("pids.max", processes)}
    for controller in CONTROLLERS:
        if controller not in roots:
            continue
        try:
            folder = roots[controller] / name
            if str(folder) not in folders.values():  # cpu and cpuacct are one hierarchy on many machines
                folder.mkdir()
            folders[controller] = str(folder)
            if controller in limits:
                file, value = limits[controller]
                (folder / file).write_text(str(value))
        except OSError as error:
            warnings.append(f"cgroup {controller}: {error.strerror}")
    if "freezer" not in folders and UNIFIED in roots:
        _make_unified(roots[UNIFIED], name, {"memory.max": memory_bytes, "pids.max": processes}, folders, warnings)
    if UNIFIED not in folders:
        warnings += [f"no limit of {controller}" for controller in ("memory", "pids") if controller not in folders]
    if "freezer" not in folders and UNIFIED not in folders:
        warnings.append("no freezer; stop signals are used")
    return folders, warnings


def _make_unified(root: Path, name: str, limits: dict[str, int], folders: dict[str, str], warnings: list[str]) -> None:
    """A version 2 group. Groups with processes can't have limited children, so it lies beside this process's own."""
    for place in (root.parent, root):
        if not (place / "cgroup.procs").exists():
            continue  # the root of the hierarchy has no parent in it
        try:
            _hand_down(place)
            folder = place / name
            folder.mkdir()
            break
        except OSError as error:
            warnings.append(f"cgroup {place}: {error.strerror}")
    else:
        return
    folders[UNIFIED] = str(folder)
    for file, value in limits.items():
        try:
            (folder / file).write_text(str(value))
        except OSError as error:
            warnings.append(f"no limit of {file.partition('.')[0]}: cgroup {file}: {error.strerror}")


def _hand_down(place: Path) -> None:
    """Let groups below `place` have the controllers that it has; where that is not allowed, their limits will tell."""
    own = (place / "cgroup.controllers").read_text().split()
    given = (place / "cgroup.subtree_control").read_text().split()
    for controller in _V2:
        if controller in own and controller not in given:
            try:
                (place / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError:
                return


def lacking() -> list[str]:
    """The limits that desktops would be without, by controller; looks only, and changes nothing."""
    roots = _controller_roots()
    unified = set[str]()
    if "freezer" not in roots and UNIFIED in roots:
        unified = _handed_down(roots[UNIFIED])
    return [name for name in ("memory", "pids") if name not in unified and not _writable(roots.get(name))]


def _handed_down(root: Path) -> set[str]:
    """The controllers that a version 2 group made here would have."""
    for place in (root.parent, root):
        if not (place / "cgroup.procs").exists() or not _writable(place):
            continue
        given = set((place / "cgroup.subtree_control").read_text().split())
        # Only the root of all may hand down controllers while it has processes itself.
        free = not (place / "cgroup.type").exists() or not (place / "cgroup.procs").read_text().strip()
        if free and _writable(place / "cgroup.subtree_control"):
            given.update((place / "cgroup.controllers").read_text().split())
        return given
    return set()


def _writable(path: Path | None) -> bool:
    return path is not None and os.access(path, os.W_OK)


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


def remove(folders: dict[str, str]) -> list[str]:
    """Remove emptied groups; those that could not be removed."""
    left = []
    for folder in folders.values():
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(folder)
    return left


def members(folders: dict[str, str]) -> set[int]:
    """Processes in any of the groups."""
    found: set[int] = set()
    for folder in folders.values():
        try:
            found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
        except FileNotFoundError:
            continue
    return found


def _number(folder: str | None, file: str, key: str = "") -> int:
    """A counter of a group: the whole file, or the value behind `key`; 0 where there is none."""
    if folder is None:
        return 0
    try:
        text = Path(folder, file).read_text()
    except OSError:
        return 0
    if not key:
        return int(text)
    return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), 0)


def oom_kills(folders: dict[str, str]) -> int:
    """Processes of the groups that the kernel killed for memory."""
    return _number(folders.get("memory"), "memory.oom_control", "oom_kill") or _number(
        folders.get(UNIFIED), "memory.events", "oom_kill"
    )


def limit_hits(folders: dict[str, str]) -> int:
    """Times that the groups could not get memory within their own limit."""
    return _number(folders.get("memory"), "memory.failcnt") or _number(folders.get(UNIFIED), "memory.events", "oom")


def cpu_s(folders: dict[str, str]) -> float:
    """Processor seconds that the groups have used."""
    nanoseconds = _number(folders.get("cpuacct"), "cpuacct.usage")
    return nanoseconds / 1e9 or _number(folders.get(UNIFIED), "cpu.stat", "usage_usec") / 1e6


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


async def freeze(folders: dict[str, str]) -> None:
    """Stop all processes of the groups. Raises DesktopFault when the kernel does not get there in time."""
    if "freezer" in folders:
        file, wanted, done = Path(folders["freezer"], "freezer.state"), "FROZEN", "FROZEN"
        state = file
    else:
        file, wanted, done = Path(folders[UNIFIED], "cgroup.freeze"), "1", "frozen 1"
        state = Path(folders[UNIFIED], "cgroup.events")
    loop = asyncio.get_running_loop()
    until = loop.time() + FREEZE_S
    try:
        file.write_text(wanted)
        while done not in state.read_text():  # version 1 tells nobody when it is done
            if loop.time() > until:
                raise fault(FaultCause.OUTSIDE_VIEW, f"not frozen after {FREEZE_S:g} s")
            await asyncio.sleep(0.002)
            if "freezer" in folders:
                file.write_text(wanted)  # a process that was just forking may need a second call
    except OSError as error:
        raise fault(FaultCause.OUTSIDE_VIEW, f"freezing: {error.strerror}") from error
