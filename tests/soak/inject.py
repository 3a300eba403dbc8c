"""Breaks parts of a run as a separate process can: by signals, sockets, files and locks.

Invariant: only the named run is touched: each victim descends from its entry point or carries its name. Every process
that was stopped and every lock that was taken is released again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import psutil

from actors.cluster.runs.cpu import part_of
from actors.replay.database import ledger_file
from tests.bench.processes import kind_of
from tests.soak.levels import groups

_PIDFD_GETFD = 438  # of the system call table that all of Linux's architectures have shared since 5.6
_libc = ctypes.CDLL(None, use_errno=True)
FILL_STEP_BYTES = 16 << 20
PARTS = {"host": "desktop hosts", "engine": "engine", "rank": "rank"}
KINDS = {"agent": "agent", "sshd": "sshd", "x": "X server", "app": "application"}


class Hit(msgspec.Struct, frozen=True):
    """What was hit; `undo` ends what lasts."""

    victim: str
    desktop: str = ""
    undo: Callable[[], None] | None = None


class Guest(msgspec.Struct, frozen=True):
    """A desktop seen from outside."""

    name: str
    outer: int
    kinds: dict[int, str]  # pid -> kind

    def pids(self, kind: str) -> list[int]:
        """Its processes of a kind, oldest first."""
        return sorted(pid for pid, found in self.kinds.items() if found == kind)


def guests(run: Path) -> list[Guest]:
    """The run's desktops that are not frozen, by name."""
    found = []
    by_name: dict[str, list[Path]] = {}
    for group in groups(run):
        by_name.setdefault(group.name, []).append(group)
    for name, folders in sorted(by_name.items()):
        pids: set[int] = set()
        frozen = False
        for folder in folders:
            try:
                pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
                for state in ("freezer.state", "cgroup.freeze"):
                    frozen = frozen or ((folder / state).is_file() and _frozen((folder / state).read_text()))
            except OSError:  # it has just gone
                continue
        if frozen or not pids:
            continue
        words = {pid: _words(pid) for pid in sorted(pids)}
        wrapped = [pid for pid, line in words.items() if line[:1] == ["bwrap"]]
        if wrapped:
            kinds = {pid: kind_of(_name(pid), line) for pid, line in words.items()}
            found.append(Guest(name, wrapped[0], kinds))
    return found


def _frozen(text: str) -> bool:
    return text.strip() in ("FROZEN", "FREEZING", "1")


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def inject(kind: str, pick: float, run: Path, entry_pid: int, state_dir: str) -> Hit | None:
    """Break something now; None when there is no victim at this moment. Blocks for at most some seconds."""
    part, _, how = kind.rpartition("_")
    if kind == "ledger_lock":
        return _lock(run)
    if part in PARTS:
        return _signal_part(PARTS[part], how, entry_pid)
    able = [guest for guest in guests(run) if _able(guest, kind)]
    if not able:
        return None
    guest = able[int(pick * len(able))]
    try:
        return _hit_guest(kind, guest, state_dir)
    except (ProcessLookupError, FileNotFoundError):  # it went in this very moment
        return None


def _able(guest: Guest, kind: str) -> bool:
    """Whether the desktop has what the fault needs: one that is about to be thrown away has it not."""
    if kind in ("sandbox_kill", "disk_fill"):
        return True
    return bool(guest.pids(KINDS.get(kind.rpartition("_")[0], "sshd")))


def _hit_guest(kind: str, guest: Guest, state_dir: str) -> Hit | None:
    if kind == "sandbox_kill":
        os.kill(guest.outer, signal.SIGKILL)
        return Hit(f"pid {guest.outer}", guest.name)
    if kind == "disk_fill":
        owner, _, number = guest.name.rpartition(".")
        return Hit(f"{_fill(Path(state_dir, owner, number, 'disk', 'tmp', 'filler')) >> 20} MiB", guest.name)
    if kind == "connection_cut":
        sockets = _cut(guest.pids("sshd"))
        return Hit(f"{sockets} sockets", guest.name) if sockets else None
    part, _, how = kind.rpartition("_")
    pids = guest.pids(KINDS[part])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP if how == "stop" else signal.SIGKILL)
    return Hit(f"pids {', '.join(map(str, pids))}", guest.name)


def _signal_part(part: str, how: str, entry_pid: int) -> Hit | None:
    for child in psutil.Process(entry_pid).children():
        try:
            if part_of(child.cmdline()) != part:
                continue
            child.send_signal(signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
        return Hit(f"pid {child.pid}", undo=partial(_resume, child) if how == "stop" else None)
    return None


def _resume(process: psutil.Process) -> None:
    """Let it go on; psutil makes sure that it is still the same process."""
    if process.is_running():
        process.send_signal(signal.SIGCONT)


def _lock(run: Path) -> Hit | None:
    held = ledger_file.taken(run)
    return None if held is None else Hit("the ledger's file", undo=held.close)


def _fill(path: Path) -> int:
    """Take all that the guest's disk still has; bytes."""
    size = 0
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        step = FILL_STEP_BYTES
        while step >= 4096:
            try:
                os.posix_fallocate(fd, size, step)
                size += step
            except OSError:
                step //= 4
    finally:
        os.close(fd)
    return size


def _cut(pids: list[int]) -> int:
    """Shut down the sockets by which SSH servers talk to the host; how many."""
    cut = 0
    for pid in pids:
        pidfd = os.pidfd_open(pid)
        try:
            for number in (int(name) for name in os.listdir(f"/proc/{pid}/fd")):
                fd = _libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
                if fd >= 0 and _shut(fd):
                    cut += 1
        finally:
            os.close(pidfd)
    return cut


def _shut(fd: int) -> bool:
    """Shut down the connection behind a descriptor and close the descriptor; False for what is no such connection."""
    try:
        link = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return False
    with link:
        try:
            if str(link.getsockname()).endswith("/ssh"):
                link.shutdown(socket.SHUT_RDWR)
                return True
        except OSError:
            return False
    return False
