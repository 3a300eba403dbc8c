"""What a terminal shows, for a caller that can't look at its pixels: the agent starts it between xterm and the shell.

Invariant: the user's programs and xterm see what they would see without it: the same bytes, sizes, signals and end. The
file of the last bytes never grows.

Runs as a program of its own (`python3 -I -S terminal.py [COMMAND ...]`), so it imports little and nothing of `guest`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pty
import select
import signal
import stat
import struct
import sys
import termios
import tty

RING_BYTES = 32 << 10
_HEADER = struct.Struct("<QHH")  # bytes written so far, rows, columns
FILE_BYTES = _HEADER.size + RING_BYTES
_PIECE_BYTES = 16 << 10
_LINE_BYTES = 1 << 10
SILENT_CLASSES = {"xterm", "uxterm"}  # they draw their text themselves and tell the accessibility bus nothing


def path_of(window: int) -> str:
    """The file of the terminal with this X window."""
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), f"terminal-{window}")


class Tail:
    """The last bytes written to one terminal, shared with the agent through a file."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, FILE_BYTES)
        self._map = mmap.mmap(fd, FILE_BYTES)
        os.close(fd)
        self._count = 0
        self._size = (0, 0)

    def resize(self, rows: int, columns: int) -> None:
        self._size = (rows, columns)
        self.add(b"")

    def add(self, data: bytes) -> None:
        kept = data[-RING_BYTES:]
        at = (self._count + len(data) - len(kept)) % RING_BYTES
        first = kept[: RING_BYTES - at]
        start = _HEADER.size + at
        self._map[start : start + len(first)] = first
        rest = kept[len(first) :]
        self._map[_HEADER.size : _HEADER.size + len(rest)] = rest
        self._count += len(data)
        self._map[: _HEADER.size] = _HEADER.pack(self._count, *self._size)


def read(path: str) -> tuple[int, int, int, bytes] | None:
    """Bytes written so far, rows, columns and the last bytes in order; None where there is no such file.

    Nothing about the file is trusted: a program of the desktop may have written anything into it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = file.read(FILE_BYTES)
    if len(data) < FILE_BYTES:
        return None
    count, rows, columns = _HEADER.unpack_from(data)
    ring = data[_HEADER.size :]
    if count <= RING_BYTES:
        return count, rows, columns, ring[:count]
    at = count % RING_BYTES
    ordered = ring[at:] + ring[:at]  # read from the start of a line, if one is near
    return count, rows, columns, ordered[ordered.find(b"\n", 0, _LINE_BYTES) + 1 :]


def _same_size(source: int, target: int) -> tuple[int, int]:
    """Give one terminal the other's size; rows and columns."""
    size = fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(target, termios.TIOCSWINSZ, size)
    rows, columns, *_ = struct.unpack("HHHH", size)
    return rows, columns


def _pass_on(shell: int, tail: Tail, woken: int) -> None:
    typed = b""
    while True:
        readable, writable, _ = select.select(
            [shell, woken, *([] if len(typed) > _PIECE_BYTES else [0])], [shell] if typed else [], []
        )
        if woken in readable:
            os.read(woken, 64)
            tail.resize(*_same_size(0, shell))
        if shell in readable:
            try:
                shown = os.read(shell, _PIECE_BYTES)
            except OSError:  # how the end of a terminal shows
                return
            if not shown:
                return
            tail.add(shown)
            while shown:
                shown = shown[os.write(1, shown) :]
        if 0 in readable:
            piece = os.read(0, _PIECE_BYTES)
            if not piece:
                return
            typed += piece
        if shell in writable:
            typed = typed[os.write(shell, typed) :]


def main(command: list[str]) -> int:
    """Run `command` (default: the user's shell) in a terminal of its own; its exit status."""
    command = command or [os.environ.get("SHELL", "/bin/bash")]
    path = path_of(int(os.environ.get("WINDOWID", "0")))
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    pid, shell = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, as xterm would run it
    tail = Tail(path)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGWINCH, lambda *_: None)
    tail.resize(*_same_size(0, shell))
    tty.setraw(0, termios.TCSANOW)  # what was typed already is for the shell
    try:
        _pass_on(shell, tail, woken)
    finally:
        os.unlink(path)
    os.close(shell)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
