"""Keeps a session on a machine that it shares with others: holds it until standard input ends, stops it when told to.

Invariant: every process of the session is stopped and at last ended, whether it still carries the session's mark or
not. This process adopts all processes whose parents have ended, and the agent is its child.
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
import time
from pathlib import Path

from guest.session.attach import DOOR, FDS
from guest.session.members import ENDED, NOT_STOPPED, Member, descendants, running
from guest.session.session import MARK, Session

ATTACH_S = 5.0  # for a new connection to say what it wants
END_S = 5.0  # for a process to be gone that was killed
STOP_S = 10.0  # for all to be stopped
SWEEP_S = 20.0  # for all to be gone; what the kernel does not let end then is left
BATCH = 200  # processes killed at a time: each costs a descriptor
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
        try:
            sweep(token)
        finally:
            _remove(folder)


def main(argv: list[str]) -> int:
    """End and remove all that a session left whose keeper was killed: its token and its folder are the arguments."""
    token, folder = argv
    sweep(token)
    _remove(Path(folder))
    return 0


def _remove(folder: Path) -> None:
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
                _say("frozen" if stop(token) else f"{NOT_STOPPED} within {STOP_S:g} s")


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
            guest = str(Path(__file__).resolve().parent.parent)
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
    """Kill all of the session, again until none is left or `SWEEP_S` are over: a dying parent may just have forked."""
    beyond: set[int] = set()  # of another user by now
    until = time.monotonic() + SWEEP_S
    while (pids := [pid for pid in members(token) if pid not in beyond]) and time.monotonic() < until:
        watched = []
        for pid in pids[:BATCH]:
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
        soon = time.monotonic() + END_S
        for fd in watched:
            gone = select.poll()
            gone.register(fd, select.POLLIN)
            gone.poll(1e3 * max(0.0, soon - time.monotonic()))
            os.close(fd)


def stop(token: str) -> bool:
    """Stop all of the session, until two looks in turn find none that may run: one may miss an orphan's child.

    Whether that came within `STOP_S`.
    """
    until = time.monotonic() + STOP_S
    told: set[int] = set()
    beyond: set[int] = set()  # of another user by now
    clean = 0
    while clean < 2:
        if time.monotonic() > until:
            return False
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
    return True
