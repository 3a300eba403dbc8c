"""The faults that a soak injects, the log lines that must name them, and how each is made, as a separate process can.

Every kind has a deadline and at least one line that names it. Only the named run is touched: each victim descends from
its entry point or carries its name. Every process that was stopped and every lock that was taken is released again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psutil

from actors.cluster.runs.execute import part_of
from actors.desktop.providers.sandbox.cgroups import places
from actors.desktop.providers.sandbox.owners import RUN_CHARS
from actors.replay.database import ledger_file

Line = Mapping[str, Any]


class Sign(msgspec.Struct, frozen=True):
    """A log line: an event whose fields begin with these texts."""

    event: str
    fields: tuple[tuple[str, str], ...] = ()

    def matches(self, line: Line) -> bool:
        """Whether `line` is such a line."""
        named = all(str(line.get(field, "")).startswith(text) for field, text in self.fields)
        return line["event"] == self.event and named

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{field}={text}" for field, text in self.fields)])


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One way to break a run."""

    name: str
    part: str  # what it hits; two faults of one part keep `rest_s` between them
    signs: tuple[Sign, ...]  # any of them names it
    deadline_s: float
    hold_s: float = 0.0  # how long it lasts, where it is ended by who injected it
    whole: bool = False  # it lasts so long even where it is named sooner
    rest_s: float = 0.0
    weight: int = 1


def _sign(event: str, **fields: str) -> Sign:
    return Sign(event, tuple(fields.items()))


DIED = _sign("desktop_spare_died")  # it hit a desktop that no seat had leased yet
UNBORN = _sign("desktop_boot_failed")  # it hit one that was still booting
BROKE = "agent_broke_desktop"  # a guest can do this to itself, so it is the policy's doing once it has acted
LOST = (
    _sign("episode_ended", reason=BROKE),
    *(
        _sign("episode_faulted", cause=cause)
        for cause in ("connection_lost", "agent_silent", "boot_failed", "boot_timeout", "setup_failed", "not_observed")
    ),
    DIED,
    UNBORN,
)
OUTCOME = (_sign("episode_ended"), _sign("episode_faulted"), DIED, UNBORN)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="sandbox_kill", part="guest", deadline_s=30.0, weight=3,
            signs=(_sign("episode_faulted", cause="sandbox_killed"), _sign("episode_faulted", cause="boot_failed"),
                   DIED, UNBORN),
        ),
        Kind(name="agent_kill", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="agent_stop", part="guest", deadline_s=60.0, weight=2, signs=LOST),
        Kind(name="sshd_kill", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="connection_cut", part="guest", deadline_s=30.0, weight=2, signs=LOST),
        Kind(name="x_kill", part="guest", deadline_s=45.0, weight=2, signs=LOST),
        # The two below are no fault of anything: the episode comes to an outcome all the same.
        Kind(name="app_kill", part="guest", deadline_s=90.0, signs=OUTCOME),
        Kind(name="disk_fill", part="guest", deadline_s=90.0, signs=OUTCOME),
        Kind(
            name="host_kill", part="desktop host", deadline_s=20.0, rest_s=60.0,
            signs=(_sign("host_lost", name="desktops/"),),
        ),
        Kind(
            name="host_stop", part="desktop host", deadline_s=45.0, hold_s=45.0, rest_s=60.0,
            signs=(_sign("stall", cause="silent", whom="host/desktops/"),),
        ),
        Kind(name="engine_kill", part="engine", deadline_s=30.0, rest_s=60.0, signs=(_sign("engine_died"),)),
        Kind(
            name="engine_stop", part="engine", deadline_s=120.0, hold_s=120.0, rest_s=60.0,
            signs=(_sign("engine_silent"), _sign("engine_died")),
        ),
        Kind(
            name="rank_kill", part="rank", deadline_s=20.0, rest_s=60.0, signs=(_sign("host_lost", name="ranks/"),),
        ),
        Kind(
            name="rank_stop", part="rank", deadline_s=45.0, hold_s=45.0, rest_s=60.0,
            signs=(_sign("stall", cause="silent", whom="host/ranks/"),),
        ),
        Kind(
            name="ledger_lock", part="ledger", deadline_s=20.0, hold_s=6.0, whole=True, rest_s=20.0,
            signs=(_sign("disk_slow"),),
        ),
    )
}  # fmt: skip


class Planned(msgspec.Struct, frozen=True):
    """One fault to inject: when (seconds from the beginning of the injections), what, and which victim (0 to 1)."""

    at_s: float
    kind: str
    pick: float


def schedule(seed: int, lasts_s: float, every_s: float) -> list[Planned]:
    """Faults at random times, `every_s` apart on average, at most `lasts_s` from the beginning.

    Every kind comes once, in a random order, before any comes again by its weight. Where the drawn kind's part was hit
    too short a time ago, another is drawn: restart budgets are meant for broken parts, not for a soak.
    """
    random = Random(seed)
    first = random.sample(sorted(KINDS), len(KINDS))
    hit: dict[str, float] = {}
    plan: list[Planned] = []
    now = 0.0
    while True:
        now += every_s * random.uniform(0.5, 1.5)
        if now > lasts_s:
            return plan
        free = [name for name, kind in KINDS.items() if now - hit.get(kind.part, float("-inf")) >= kind.rest_s]
        if not free:
            continue
        wanted = [name for name in first if name in free]
        name = wanted[0] if wanted else random.choices(free, [KINDS[name].weight for name in free])[0]
        if name in first:
            first.remove(name)
        hit[KINDS[name].part] = now + KINDS[name].hold_s
        plan.append(Planned(now, name, random.random()))


_PIDFD_GETFD = 438  # of the system call table that all of Linux's architectures have shared since 5.6
_libc = ctypes.CDLL(None, use_errno=True)
FILL_STEP_BYTES = 16 << 20
PARTS = {"host": "desktop hosts", "engine": "engine", "rank": "rank"}
SESSION = ("openbox", "dbus-daemon", "at-spi-bus-laun", "at-spi2-registr", "bwrap", "dconf-service", "python3")
VICTIMS = {"agent": "agent", "sshd": "sshd", "x": "X server", "app": "application"}


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
        return sorted(pid for pid, each in self.kinds.items() if each == kind)


def mark_of(run: Path) -> str:
    """What the names of the run's desktops, groups and mounts begin with."""
    return f"crl.{run.name[-RUN_CHARS:]}."


def groups(run: Path) -> list[Path]:
    """The control groups of the run's desktops: a run that this process starts makes them where it would itself."""
    mark = mark_of(run)
    return [path for place in places() if place.is_dir() for path in place.iterdir() if path.name.startswith(mark)]


def guests(run: Path) -> list[Guest]:
    """The run's desktops that are not frozen, by name."""
    seen = []
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
            seen.append(Guest(name, wrapped[0], kinds))
    return seen


def kind_of(name: str, words: list[str]) -> str:
    """What a guest process is, by its kernel name and command line."""
    if name in ("Xvfb", "sshd"):
        return "X server" if name == "Xvfb" else name
    if name != "bwrap" and "agent" in words and any(word.endswith("/guest") for word in words):
        return "agent"  # a sandbox's own command line names both as well
    return "other" if name in SESSION else "application"


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
    return bool(guest.pids(VICTIMS.get(kind.rpartition("_")[0], "sshd")))


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
    pids = guest.pids(VICTIMS[part])
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
    """Keeps the ledger from its writer until the connection is closed."""
    held = sqlite3.connect(run / ledger_file.LEDGER, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        held.close()
        return None
    return Hit("the ledger's file", undo=held.close)


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
