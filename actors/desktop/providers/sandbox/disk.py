"""The desktop's own disk, HOME, /tmp and the run folder on one size-limited tmpfs, and its own terminals.

Invariant: where mounting is not allowed the desktop still gets its folders, and a warning says that no limit holds.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MNT_DETACH = 2, 4, 8, 2
FOLDERS = ("home", "tmp", "run")
INODES = 20_000
REMOVE_S = 20.0  # for each try at what is awkward to remove


def make(folder: Path, uid: int, size_bytes: int) -> list[str]:
    """Make `folder` with home, tmp and run in it, owned by `uid`; warnings."""
    folder.mkdir()
    folder.chmod(0o711)
    options = f"size={size_bytes},nr_inodes={INODES},mode=711".encode()
    warnings = []
    done = _libc.mount(b"computerrl", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    if done != 0:
        warnings.append(f"no limit of disk: {os.strerror(ctypes.get_errno())}")
    for name in FOLDERS:
        below = folder / name
        below.mkdir(mode=0o700)
        os.chown(below, uid, -1)
    (folder / "tmp" / ".X11-unix").mkdir()
    os.chmod(folder / "tmp" / ".X11-unix", 0o1777)  # noqa: S103 - as X wants it; the guest has one user
    os.chown(folder / "tmp" / ".X11-unix", uid, -1)
    return warnings


def make_terminals(folder: Path, most: int) -> list[str]:
    """Make `folder` and a file system of at most so many terminals in it; warnings.

    The kernel counts terminals of the whole machine: without a limit one desktop can take those of the others.
    """
    folder.mkdir()
    options = f"newinstance,ptmxmode=0666,mode=620,max={most}".encode()
    if _libc.mount(b"computerrl", os.fsencode(folder), b"devpts", _MS_NOSUID | _MS_NOEXEC, options) != 0:
        return [f"no limit of terminals: {os.strerror(ctypes.get_errno())}"]
    return []


def fill_home(home: Path, template: Path, uid: int) -> None:
    """Copy the template into HOME and give it to `uid`, with a group of its own where that is allowed."""
    group = uid if uid != os.geteuid() else -1
    shutil.copytree(template, home, symlinks=True, dirs_exist_ok=True)
    for folder, folders, files in os.walk(home):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), uid, group)
    os.chown(home, uid, group)
    home.chmod(0o700)


def unmount(folder: Path) -> None:
    """Unmount, even while something still uses it; nothing where nothing is mounted."""
    if os.path.ismount(folder) and _libc.umount2(os.fsencode(folder), _MNT_DETACH) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def remove(folder: Path) -> None:
    """Delete a folder with all in it; what is mounted in it must have been unmounted. Raises OSError."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # without a disk of its own a guest may have left what is locked or nested deeply
        try:
            for command in (["chmod", "-R", "u+rwx", "--"], ["rm", "-rf", "--"]):
                subprocess.run([*command, str(folder)], capture_output=True, check=False, timeout=REMOVE_S)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{folder} was not removed within {REMOVE_S:g} s") from error
        if folder.exists():
            raise
