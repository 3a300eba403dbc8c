"""Keeps a session on a machine that it shares with others: holds it until standard input ends, stops it when told to.

Invariant: whatever the session has started is stopped, and at last ended, whether it still carries the session's mark
or not: this process takes over all whose parents have ended, and the agent, too, is a child of this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from guest.attach import DOOR, FDS
from guest.members import ENDED, Member, descendants, running
from guest.session import MARK, Session

ATTACH_S = 5.0  # for whoever knocks to say what it wants
END_S = 5.0  # for a process to be gone that was killed
_SET_CHILD_SUBREAPER = 36  # prctl's


def keep(session: Session, folder: Path, token: str) -> None:
    """Say that the session is up, hold it until standard input ends, then remove all of it."""
    try:
        _adopt()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(str(session.run / DOOR))
            door.listen(1)
            session.start()
            _say("up")
            _hold(session, door, token)
    finally:
        sweep(token)
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):  # whatever was locked, and however deep it lies
            subprocess.run([*command, str(folder)], check=False, stdin=subprocess.DEVNULL)


def _adopt() -> None:
    """Take over the orphans among all that this process will start, and bury them when they end."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.signal(signal.SIGCHLD, lambda *_: _bury())


def _bury() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _hold(session: Session, door: socket.socket, token: str) -> None:
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    waiting.register(door, select.POLLIN)
    while True:
        ready = {fd for fd, _ in waiting.poll()}
        if door.fileno() in ready and _attach(session, door):
            waiting.unregister(door)  # there is one agent, and what it starts is not to start another
        if 0 in ready:
            said = os.read(0, 4096)
            if not said:
                return
            if said == b"freeze\n":
                stop(token)
                _say("frozen")


def _say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def _attach(session: Session, door: socket.socket) -> bool:
    """Start the agent on the input and output of who knocks; False where that was somebody else."""
    connection, _ = door.accept()
    with connection:
        connection.settimeout(ATTACH_S)
        fds: list[int] = []
        try:
            _, fds, *_ = socket.recv_fds(connection, 1, FDS)
            if len(fds) != FDS:
                return False
            guest = str(Path(__file__).resolve().parent)
            argv = [sys.executable, "-I", guest, "agent", "--run", str(session.run)]
            # It holds the connection until it ends, by which who knocked hears of that.
            session.children.append(
                subprocess.Popen(
                    argv, stdin=fds[0], stdout=fds[1], stderr=fds[2], env=session.env, cwd=session.home,
                    pass_fds=(connection.fileno(),),
                )
            )  # fmt: skip
        except OSError:  # it has gone, or says nothing
            return False
        finally:
            for fd in fds:
                os.close(fd)
    return True


def members(token: str) -> dict[int, Member]:
    """The session's living processes: descendants of this one, and all that carry its token, with theirs."""
    own = os.getpid()
    found = descendants(own, *_bearing(token))
    return {pid: member for pid, member in found.items() if pid != own and not member.states <= ENDED}


def _bearing(token: str) -> list[int]:
    """Processes of this user that carry the session's token in their environment."""
    mark = f"{MARK}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or is another user's
                continue
            if marked:
                found.append(int(entry.name))
    return found


def sweep(token: str) -> None:
    """Kill all of the session, again until none is left: a dying parent may just have forked."""
    beyond: set[int] = set()  # of another user by now
    while pids := [pid for pid in members(token) if pid not in beyond]:
        watched = []
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                os.close(fd)
            except PermissionError:
                beyond.add(pid)
                os.close(fd)
            else:
                watched.append(fd)
        for fd in watched:
            select.select([fd], [], [], END_S)
            os.close(fd)


def stop(token: str) -> None:
    """Stop all of the session, until two looks in turn find none that may run: one may miss an orphan's child."""
    told: set[int] = set()
    beyond: set[int] = set()  # of another user by now
    clean = 0
    while clean < 2:
        left = [pid for pid in running(members(token), told) if pid not in beyond]
        clean = 0 if left else clean + 1
        for pid in left:
            told.add(pid)
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                continue
            except PermissionError:
                beyond.add(pid)
