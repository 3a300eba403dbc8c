"""Who owns a desktop's resources: the state folder, users of this host, and the owner that a resource's name tells.

Invariant: no other user of this machine can lay, replace, take away or lock anything in the state folder. No two live
desktops have the same user: a byte of a file that only root can open is locked for it, and the kernel frees the lock
when its owner dies. An owner counts as dead only when it has surely ended: by /proc for a process of this process
namespace, else by the lock on the owner's folder. A process that can't see the folder touches nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import struct
from pathlib import Path

import msgspec

from actors.desktop.faults import FaultCause, fault

LOCK = ".lock"
_MODE = 0o755  # desktops have users of their own, who pass through
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = ["0", "0", str(2**32 - 1)]  # the map of a user namespace that has all


def unsafe(folder: Path) -> str | None:
    """How other users could change what lies in `folder`, with the command that mends it; None where they can't.

    Folders that don't exist yet are safe: who makes them owns them.
    """
    trusted = {0, os.geteuid()}
    if Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
        # A user outside of this user namespace looks like this, the machine's root among them.
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    place = folder.absolute()
    real = Path(os.path.realpath(place))
    ways = dict.fromkeys([place, *place.parents, real, *real.parents])
    for path in reversed(ways):  # links, too, are as safe as the folder that they lie in
        try:
            seen = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return f"{path}: {error.strerror}; name another"
        if seen.st_uid not in trusted:
            return f"{path} belongs to user {seen.st_uid}; chown {os.geteuid()} {path}"
        shared = seen.st_mode & _OTHERS and not (seen.st_mode & stat.S_ISVTX and path not in (place, real))
        if shared:
            return f"other users may write to {path}; chmod go-w {path}"
    return None


def locked_file(folder: Path) -> int:
    """A descriptor of the folder's lock file, which both are made where they are missing. It holds no lock yet.

    Raises PermissionError for a folder that is not safe, and OSError.
    """
    _refuse(folder)
    made = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        made.append(path)
    for path in reversed(made):
        path.mkdir(exist_ok=True)  # another provider may be at it
        path.chmod(_MODE)  # whatever the umask is
    _refuse(folder)
    # Never through a link, and nothing is cut off, should another user have laid something there before it was safe.
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(file, 0o600)
    except OSError:
        os.close(file)
        raise
    return file


def _refuse(folder: Path) -> None:
    if (why := unsafe(folder)) is not None:
        raise PermissionError(errno.EPERM, why)


FIRST_UID = 20_000
LAST_UID = 29_999
LEASES = Path("/run/computerrl")  # of all programs of this machine, wherever their desktops' folders lie
_TAKEN = (BlockingIOError, PermissionError)  # EAGAIN or EACCES, as the kernel likes
_FLOCK = "hhqqi4x"  # struct flock of Linux on 64 bits: type, whence, start, length, process
_MAPS = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))


class UserLease:
    """The exclusive use of one user id."""

    def __init__(self, uid: int, holder: int | None) -> None:
        self.uid = uid
        self._holder = holder  # the open file by which a byte of the lock file is locked

    @property
    def shared(self) -> bool:
        """Whether it is this process's own user, and that of all its other desktops."""
        return self._holder is None

    def release(self) -> None:
        """Let others have it; all processes of the user must be gone."""
        if self._holder is not None:
            # By word, as a child that is about to start a program may still have the file open.
            _lock(self._holder, fcntl.F_UNLCK, self.uid)
            os.close(self._holder)
            self._holder = None


def lends_users() -> bool:
    """Whether this process may run others as users of their own: root, and not one who is root for himself alone."""
    if os.geteuid() != 0:
        return False
    for path in _MAPS:
        ranges = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        if not any(first < FIRST_UID and first + count > LAST_UID for first, _, count in ranges):
            return False
    return True


def lease_user(start: int = 0) -> UserLease:
    """A user id that no other desktop of this machine has; without root's rights it is this process's own.

    `start` is where to begin looking, counted from `FIRST_UID`. Raises DesktopFault when all are taken, and OSError.
    """
    if not lends_users():
        return UserLease(os.geteuid(), None)
    count = LAST_UID - FIRST_UID + 1
    holder = locked_file(LEASES)
    for step in range(count):
        uid = FIRST_UID + (start + step) % count
        try:
            _lock(holder, fcntl.F_WRLCK, uid)
        except _TAKEN:
            continue
        return UserLease(uid, holder)
    os.close(holder)
    raise fault(FaultCause.SANDBOX_REFUSED, f"all users from {FIRST_UID} to {LAST_UID} are taken")


def _lock(file: int, kind: int, uid: int) -> None:
    """Lock the user's byte, or let it go. The lock is the open file's: not even this process has it a second time."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, uid, 1, 0))


def started_at(pid: int) -> int | None:
    """When a process started (clock ticks since boot), or None when there is none: with its id it names it for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


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
            folder = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                new.rename(base / self.name)
            except BaseException:
                os.close(folder)
                raise
        except BaseException:
            new.rmdir()
            raise
        return folder

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
    owners = [owner_of(entry.name) for entry in base.iterdir()] if base.is_dir() else []
    living = [
        (owner.run, (owner.pid, owner.namespace)) for owner in owners if owner is not None and not owner.dead(base)
    ]
    runs = frozenset(run for run, process in living if process == here)
    return runs, len({here} | {process for run, process in living if run in runs})


def owner_of(name: str) -> SandboxOwner | None:
    """The owner that a name tells, or None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    return match and SandboxOwner(
        match["run"], int(match["pid"]), int(match["started"]), match["namespace"], match["token"]
    )
