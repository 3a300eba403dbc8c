"""The owner of a desktop's resources, as their names tell it.

Invariant: an owner counts as dead only when it has surely ended. For a process of this process namespace, /proc tells.
For another namespace, which shares the state folder or the control groups, the lock on the owner's folder tells. The
kernel frees that lock when the owner dies, however it dies. A process that can't see the folder touches nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path

import msgspec

from actors.desktop.users import started_at

NEW = "."  # before the name of a folder that is being made
RUN_CHARS = 30  # of a run's name, at most
_NAME = re.compile(
    rf"crl\.(?P<run>[\w-]{{0,{RUN_CHARS}}})\.(?P<pid>\d+)\.(?P<started>\d+)"
    r"\.(?P<namespace>[0-9a-f]{8})\.(?P<token>[0-9a-f]{8})(\.(?P<n>\d{1,7}))?"
)


def namespace() -> str:
    """8 hex digits for this process's process namespace, on this boot of this machine. Raises OSError."""
    if int(os.readlink("/proc/self")) != os.getpid():
        raise ProcessLookupError("/proc shows another process namespace than this program's own")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    named = f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    return hashlib.blake2b(named.encode(), digest_size=4).hexdigest()


class SandboxOwner(msgspec.Struct, frozen=True):
    """Who owns a desktop's resources: a process, and one provider in it."""

    run: str
    pid: int
    started: int
    namespace: str  # 8 hex digits, of the process namespace that counts `pid`
    token: str  # 8 hex digits, of the provider

    @classmethod
    def this_process(cls, run: str, most: int = 255) -> SandboxOwner:
        """This process, with a fresh token; characters of `run` that don't belong in a name are replaced.

        Of `run` it keeps as much of the end as a name of `most` bytes has room for: a socket's path contains the name.
        Raises OSError where /proc does not show this process.
        """
        started = started_at(os.getpid())
        if started is None:
            raise ProcessLookupError("this process has no entry in /proc")
        unnamed = cls("", os.getpid(), started, namespace(), os.urandom(4).hex())
        run = re.sub(r"[^A-Za-z0-9_-]", "-", run)
        kept = max(0, min(RUN_CHARS, most - len(unnamed.name)))
        return msgspec.structs.replace(unnamed, run=run[max(0, len(run) - kept) :])

    @property
    def name(self) -> str:
        """The name of the provider's folder, and the beginning of its desktops' names."""
        return f"crl.{self.run}.{self.pid}.{self.started}.{self.namespace}.{self.token}"

    def settle(self, base: Path) -> int:
        """Make the owner's folder below `base`; the descriptor that has it locked, for as long as the owner lives."""
        # Others must never see it unlocked, so it gets its name last.
        new = base / f"{NEW}{self.name}"
        new.mkdir()
        try:
            new.chmod(0o711)  # whatever the umask is
            held = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                new.rename(base / self.name)
            except BaseException:
                os.close(held)
                raise
        except BaseException:
            new.rmdir()
            raise
        return held

    def dead(self, base: Path) -> bool:
        """Whether it has surely ended; its folder would lie below `base`."""
        if self.namespace == namespace():
            return started_at(self.pid) != self.started
        try:
            folder = os.open(base / self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(folder)
        return True


def sharing(base: Path) -> tuple[frozenset[str], int]:
    """The runs of which this process has a folder below `base`, and how many processes have any of them, with it."""
    here = os.getpid(), namespace()
    found = [owner_of(entry.name) for entry in base.iterdir()] if base.is_dir() else []
    living = [(one.run, (one.pid, one.namespace)) for one in found if one is not None and not one.dead(base)]
    runs = frozenset(run for run, process in living if process == here)
    return runs, len({here} | {process for run, process in living if run in runs})


def owner_of(name: str) -> SandboxOwner | None:
    """The owner that a name tells, or None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    return match and SandboxOwner(
        match["run"], int(match["pid"]), int(match["started"]), match["namespace"], match["token"]
    )
