"""Removes what a dead owner left.

Invariant: a desktop's folder, mount, control groups and processes carry a name that says which process owns them
(`owners.SandboxOwner`). A process that was forked for a sandbox and has not yet become it is known by the sandbox's
log, which it holds from its first instant. So nothing of a live owner is touched. Nothing of a dead owner is missed,
whatever instant it died at.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.desktop import statefolder
from actors.desktop.providers.sandbox import cgroups, disk, grouping, hierarchies, owners

_DEPTH = 8  # of control groups that are searched
_GONE_S = 5.0
_UNSEEN = {0}  # what a group says for a member of a process namespace that this one does not see
LOG = "log"  # on a desktop's disk: what its sandbox says


def _dead(name: str, base: Path) -> bool:
    owner = owners.owner_of(name)
    return owner is not None and owner.dead(base)


def _groups(base: Path) -> Iterator[Path]:
    """Control groups of dead owners, deepest first."""
    for line in hierarchies.MOUNTS.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            for folder, folders, _ in os.walk(where, topdown=True):
                yield from (Path(folder, name) for name in folders if _dead(name, base))
                if folder.count("/") - where.count("/") >= _DEPTH:
                    folders.clear()


def _processes(logs: set[str], base: Path) -> Iterator[int]:
    """Processes that were started with the name of a dead owner's desktop, and those about to be."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                named = b"--token" in words and any(_dead(word.decode("utf-8", "replace"), base) for word in words)
                if named or (logs and _writes(Path("/proc", entry), logs)):
                    yield int(entry)
            except OSError:
                continue


def _writes(process: Path, files: set[str]) -> bool:
    """Whether it holds one of `files` open for writing. Raises OSError when it can't be looked at."""
    # Downwards: a child that is about to start a program copies the log to its standard output, then closes the rest.
    for fd in sorted(map(int, os.listdir(process / "fd")), reverse=True):
        try:
            if os.readlink(process / "fd" / str(fd)) not in files:
                continue
            info = (process / "fdinfo" / str(fd)).read_text()
        except FileNotFoundError:  # closed meanwhile
            continue
        flags = next(line.split()[1] for line in info.splitlines() if line.startswith("flags:"))
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            return True
    return False


def _kill(pids: set[int]) -> None:
    """Kill and wait until they are gone, at most a few seconds each."""
    watched = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        watched.append(fd)
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for fd in watched:
        select.select([fd], [], [], _GONE_S)
        os.close(fd)


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed."""

    processes: int
    groups: int
    folders: int
    left: list[str]  # what could not be removed


def reap(state_dir: str) -> Reaped:
    """Kill and remove all that dead owners left below `state_dir` and in the control groups. Blocks; needs no loop."""
    base = Path(state_dir)
    with os.fdopen(statefolder.locked_file(base), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        groups = list(_groups(base))
        folders = {str(path): str(path) for path in groups}
        cgroups.thaw(folders)
        logs = {
            str(log) for folder in base.iterdir() if _dead(folder.name, base) for log in folder.glob(f"*/disk/{LOG}")
        }
        victims: set[int] = set()
        # Looked again after each kill: one that was killed may just have forked.
        while found := ({*_processes(logs, base)} | cgroups.members(folders)) - victims - _UNSEEN:
            _kill(found)
            victims |= found
        left = grouping.remove(folders)
        gone = 0
        for folder in base.iterdir():
            # An owner that was alive when the folders were listed removes its own before it ends.
            if not _dead(folder.name.removeprefix(owners.NEW), base) or not folder.exists():
                continue
            for name in ("disk", "pts", "trial"):
                for mounted in folder.glob(f"*/{name}"):
                    disk.unmount(mounted)
            # While groups stay, so does the folder: by its lock other process namespaces know whose they are.
            if any(folder.name in group for group in left):
                continue
            disk.remove(folder)
            gone += 1
    return Reaped(processes=len(victims), groups=len(groups) - len(left), folders=gone, left=left)
