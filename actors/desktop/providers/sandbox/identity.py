"""Users of this host for desktops, and who owns what after a crash.

Invariant: at any time no two live desktops of this machine have the same user: an abstract socket named after the user
is held as long as the desktop lives, and the kernel frees it when its owner dies, however it dies.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from actors.desktop.faults import FaultCause, fault

FIRST_UID = 20_000
LAST_UID = 29_999
_MAPS = (Path("/proc/self/uid_map"), Path("/proc/self/gid_map"))


class UserLease:
    """The exclusive use of one user id."""

    def __init__(self, uid: int, holder: socket.socket | None) -> None:
        self.uid = uid
        self._holder = holder

    @property
    def shared(self) -> bool:
        """Whether it is this process's own user, and that of all its other desktops."""
        return self._holder is None

    def release(self) -> None:
        """Let others have it; all processes of the user must be gone."""
        if self._holder is not None:
            self._holder.close()
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

    `start` is where to begin looking, counted from `FIRST_UID`. Raises DesktopFault when all are taken.
    """
    if not lends_users():
        return UserLease(os.geteuid(), None)
    count = LAST_UID - FIRST_UID + 1
    for step in range(count):
        uid = FIRST_UID + (start + step) % count
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0computerrl-uid-{uid}")
        except OSError:
            holder.close()
            continue
        return UserLease(uid, holder)
    raise fault(FaultCause.SANDBOX_REFUSED, f"all users from {FIRST_UID} to {LAST_UID} are taken")


def started_at(pid: int) -> int | None:
    """When a process started (clock ticks since boot), or None when there is none: with its id it names it for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
