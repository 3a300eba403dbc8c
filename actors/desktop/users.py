"""Users of this host for desktops, and the start time that names a process.

Invariant: no two live desktops of this machine have the same user at any time. A byte of a file that only root can open
is locked for the user as long as the desktop lives. The kernel frees the lock when its owner dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from actors.desktop import statefolder
from actors.desktop.faults import FaultCause, fault

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
    holder = statefolder.locked_file(LEASES)
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
