"""Runs on an SSH machine: keeps the archive of the guest's code there, and unpacks it for a session.

Invariant: what is unpacked has the digest that the caller names, and is read once. An archive gets its name only when
it is whole. The module needs the standard library only, because it is sent to machines as text.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import sys
import tarfile
import time

KEPT = 4  # archives: of as many builds as may run against one machine
KEPT_S = 24 * 3600  # since an archive was last unpacked
PART = "part-"
SEND, HELD, WANTED = "send", "held", "wanted"


def place(folder: str) -> str:
    """This user's folder for archives below `folder`. Raises SystemExit where another user has taken its name."""
    own = f"{folder}/computerrl.{os.geteuid()}"
    try:
        os.mkdir(own, 0o700)
    except FileExistsError:
        seen = os.lstat(own)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
            raise SystemExit(f"{own} is no folder of this user") from None
    return own


def read(path: str, digest: str, size: int) -> bytes | None:
    """The archive, or None where the file is missing or another one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size != size:
            return None
        data = file.read(size)
        if hashlib.sha256(data).hexdigest() != digest:
            return None
        os.utime(fd)
    return data


def keep(folder: str, digest: str, size: int) -> None:
    """Ask for the archive on standard output unless it is there, and keep what comes on standard input.

    Raises SystemExit for bytes of another digest.
    """
    own = place(folder)
    if read(f"{own}/{digest}", digest, size) is None:
        say(SEND)
        data = sys.stdin.buffer.read(size)
        if hashlib.sha256(data).hexdigest() != digest:
            raise SystemExit(f"the archive came damaged: {len(data)} bytes of {size}")
        part = f"{own}/{PART}{os.urandom(8).hex()}"
        with open(part, "xb") as file:
            file.write(data)
        os.replace(part, f"{own}/{digest}")
        clean(own)
    say(HELD)


def clean(own: str) -> None:
    """Remove what no session has used for `KEPT_S`, and of the archives all but the newest `KEPT`."""
    seen = []
    for name in os.listdir(own):
        try:
            seen.append((os.lstat(f"{own}/{name}").st_mtime, name))
        except FileNotFoundError:  # another process cleans, too
            continue
    seen.sort(reverse=True)
    archives = [name for _, name in seen if not name.startswith(PART)]
    for used, name in seen:
        if used < time.time() - KEPT_S or name in archives[KEPT:]:
            try:
                os.remove(f"{own}/{name}")
            except OSError:  # a folder that is not ours, or another process was faster
                continue


def unpack(folder: str, digest: str, size: int, session: str, command: list[str]) -> None:
    """Make the folder `session` of what the archive holds and become `command`, or say that it is wanted."""
    data = read(f"{place(folder)}/{digest}", digest, size)
    if data is None:
        say(WANTED)
        return
    os.mkdir(session, 0o700)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # newer ones warn without
            archive.extractall(session)  # noqa: S202 - its digest is the host's own
        os.execvp(command[0], command)  # noqa: S606 - the words are the host's own
    except BaseException:
        shutil.rmtree(session, ignore_errors=True)
        raise


def say(word: str) -> None:
    """Tell the other end."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> None:
    """`keep FOLDER DIGEST SIZE` or `unpack FOLDER DIGEST SIZE SESSION COMMAND...`."""
    verb, folder, digest, size, *rest = argv
    if verb == "keep":
        keep(folder, digest, int(size))
    else:
        unpack(folder, digest, int(size), rest[0], rest[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
