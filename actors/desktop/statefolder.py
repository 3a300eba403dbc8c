"""The folder that sandboxes keep their state in, and its lock file.

Invariant: no other user of this machine can lay, replace, take away or lock anything in the folder. The folder and all
above it belong to root or to this process's user. Only its owner can open the lock file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LOCK = ".lock"
_MODE = 0o755  # desktops have users of their own, who pass through
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ALL_USERS = ["0", "0", str(2**32 - 1)]  # the map of a user namespace that has all


def own() -> str:
    """Where this process's user keeps sandboxes, unless a deploy file says so: root in /run, others in their HOME."""
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return "/run/computerrl"
    return str(Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "computerrl")


def unsafe(folder: Path) -> str | None:
    """How other users could change what lies in `folder`, with the command that mends it; None where they can't.

    Folders that don't exist yet are safe: who makes them owns them.
    """
    trusted = {0, os.geteuid()}
    if Path("/proc/self/uid_map").read_text().split() != _ALL_USERS:
        # A user outside of this user namespace looks like this, the machine's root among them.
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    place = folder.absolute()
    ways = dict.fromkeys([place, *place.parents, place.resolve(), *place.resolve().parents])
    for path in reversed(ways):  # links, too, are as safe as the folder that they lie in
        try:
            seen = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if seen.st_uid not in trusted:
            return f"{path} belongs to user {seen.st_uid}; chown {os.geteuid()} {path}"
        shared = seen.st_mode & _OTHERS and not (seen.st_mode & stat.S_ISVTX and path not in (place, place.resolve()))
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
    held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(held, 0o600)
    except OSError:
        os.close(held)
        raise
    return held


def _refuse(folder: Path) -> None:
    if (why := unsafe(folder)) is not None:
        raise PermissionError(errno.EPERM, why)
