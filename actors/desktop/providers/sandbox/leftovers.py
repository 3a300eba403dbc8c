"""Names that tell their owner, and the removal of what a dead owner left.

Invariant: all that a desktop holds on this host (folder, mount, control groups, processes) carries one name that says
which process owns it, by process id and start time; a process that was forked for a sandbox and has not yet become it
is told by the sandbox's log, which it holds from its first instant. So nothing of a live owner is ever touched, and
nothing of a dead one is missed, whatever instant it died at.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.desktop.providers.sandbox import cgroups, disk
from actors.desktop.providers.sandbox.identity import started_at

_NAME = re.compile(r"crl\.(?P<run>[\w-]{0,40})\.(?P<pid>\d+)\.(?P<started>\d+)\.(?P<token>[0-9a-f]{8})(\.(?P<n>\d+))?")
_DEPTH = 8  # of control groups that are searched
_GONE_S = 5.0
LOG = "log"  # on a desktop's disk: what its sandbox says


class Owner(msgspec.Struct, frozen=True):
    """Who owns a desktop's resources: a process, and one provider in it."""

    run: str
    pid: int
    started: int
    token: str  # 8 hex digits, of the provider

    @classmethod
    def this_process(cls, run: str) -> Owner:
        """This process, with a fresh token; characters of `run` that don't belong in a name are replaced."""
        started = started_at(os.getpid())
        if started is None:
            raise ProcessLookupError("this process has no entry in /proc")
        return cls(re.sub(r"[^\w-]", "-", run)[-40:], os.getpid(), started, os.urandom(4).hex())

    @property
    def name(self) -> str:
        """The name of the provider's folder, and the beginning of its desktops' names."""
        return f"crl.{self.run}.{self.pid}.{self.started}.{self.token}"

    @property
    def alive(self) -> bool:
        """Whether that very process runs."""
        return started_at(self.pid) == self.started


def owner_of(name: str) -> Owner | None:
    """The owner that a name tells, or None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    return match and Owner(match["run"], int(match["pid"]), int(match["started"]), match["token"])


def _dead(name: str) -> bool:
    owner = owner_of(name)
    return owner is not None and not owner.alive


def _groups() -> Iterator[Path]:
    """Control groups of dead owners, deepest first."""
    for line in cgroups.MOUNTS.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            for folder, folders, _ in os.walk(where, topdown=True):
                yield from (Path(folder, name) for name in folders if _dead(name))
                if folder.count("/") - where.count("/") >= _DEPTH:
                    folders.clear()


def _processes(logs: set[str]) -> Iterator[int]:
    """Processes that were started with the name of a dead owner's desktop, and those about to be."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                named = b"--token" in words and any(_dead(word.decode("utf-8", "replace")) for word in words)
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
    if not base.is_dir():
        base.mkdir(parents=True, exist_ok=True)
        base.chmod(0o755)
    # Never through a link, and nothing is cut off: another user of this machine may have laid something there.
    held = os.open(base / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(held, "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        groups = list(_groups())
        folders = {str(path): str(path) for path in groups}
        cgroups.thaw(folders)
        logs = {str(log) for folder in base.iterdir() if _dead(folder.name) for log in folder.glob(f"*/disk/{LOG}")}
        victims: set[int] = set()
        # Looked again after each kill: one that was killed may just have forked.
        while found := ({*_processes(logs)} | cgroups.members(folders)) - victims:
            _kill(found)
            victims |= found
        left = cgroups.remove(folders)
        gone = 0
        for folder in base.iterdir():
            # An owner that was alive when the folders were listed removes its own before it ends.
            if not _dead(folder.name) or not folder.exists():
                continue
            for mounted in folder.glob("*/disk"):
                disk.unmount(mounted)
            disk.remove(folder)
            gone += 1
    return Reaped(processes=len(victims), groups=len(groups) - len(left), folders=gone, left=left)
