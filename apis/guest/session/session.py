"""Starts one desktop session (X, D-Bus, window manager, accessibility) and keeps it until its owner lets go.

Invariant: a client that gets through to the agent finds an X server that answers. `session.json` is written, and
connections are accepted, only after the server does. When this process ends, nothing it started goes on.

With `--door` (a sandbox, a container) it listens at a socket that it makes in that folder, with `--port` (a virtual
machine) at that port, and every connection gets its own `sshd -i`. With `--keep` (a machine that it shares with others,
reached by SSH) the session lasts as long as standard input stays open. Then this process adopts all processes whose
parents have ended, the agent is its child, and each of them is ended at last. With `--display` it takes part in a
desktop that runs there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from guest.session.members import ENDED, NOT_STOPPED, PLUG, Member, descendants, kill, running

MARK = "COMPUTERRL_DESKTOP"
START_S = 30.0
COOKIE_BYTES = 16
_ANY_ADDRESS, _LOCAL_ADDRESS = 65535, 256  # families of Xau(3)


def environment(run: Path, home: Path, token: str) -> dict[str, str]:
    """What every program of the session sees; settings go to a plain file, so that a verifier can read them."""
    return {
        MARK: token,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "HOME": str(home),
        "USER": os.environ.get("USER", "agent"),
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(run),
        # Xlib reads half a megabyte of sequences of keys for it whenever a program starts, and the window manager again
        # whenever a key gets another sign. Nothing here is typed by such sequences.
        "XCOMPOSEFILE": "/dev/null",
        "XAUTHORITY": str(run / "xauthority"),
        "XDG_CURRENT_DESKTOP": "X-Generic",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={run}/bus",
        "GSETTINGS_BACKEND": "keyfile",
        "GIO_USE_VFS": "local",
        "GIO_USE_VOLUME_MONITOR": "unix",
        "GDK_BACKEND": "x11",
        "GTK_MODULES": "gail:atk-bridge",
        "NO_AT_BRIDGE": "0",
        "GNOME_ACCESSIBILITY": "1",  # without it Thunderbird has no tree
        "QT_ACCESSIBILITY": "1",
        "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
        "SAL_USE_VCLPLUGIN": "gtk3",
        "GDK_RENDERING": "image",  # else through XRender, which this X server does in software
    }


def enter(run: Path) -> None:
    """Give this process the session's environment, and nothing of the one it was started with."""
    os.environ.clear()
    os.environ.update(json.loads((run / "session.json").read_text()))
    os.chdir(os.environ["HOME"])


def _first_line(fd: int, what: str) -> str:
    """Block until the program on the other end says that it is up: one line, whatever pieces it comes in."""
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([fd], [], [], START_S)
        piece = os.read(fd, 4096) if readable else b""
        if not piece:
            raise SystemExit(f"{what} did not start")
        text += piece
    os.close(fd)
    return text.decode().strip()


def _xauthority(cookie: bytes) -> bytes:
    """The file by which a server asks its clients for `cookie`, and by which they know it, whatever their display is.

    Entries by Xau(3): for any address, and for this machine, since the agent's X library knows no other kind.
    """
    addresses = ((_ANY_ADDRESS, b""), (_LOCAL_ADDRESS, socket.gethostname().encode()))
    entries = b""
    for family, address in addresses:
        fields = (address, b"", b"MIT-MAGIC-COOKIE-1", cookie)
        entries += struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)
    return entries


def of_display(display: str) -> dict[str, str]:
    """What programs need for a display that is there, as its own programs have it. Raises SystemExit."""
    names = ("DBUS_SESSION_BUS_ADDRESS", "XAUTHORITY", "XDG_CURRENT_DESKTOP")
    mark = f"DISPLAY={display}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it ended, is another user's, or is no process
            lines = (entry / "environ").read_bytes().split(b"\0")
            if mark in lines and any(line.startswith(b"DBUS_SESSION_BUS_ADDRESS=") for line in lines):
                known = dict(line.decode("utf-8", "replace").split("=", 1) for line in lines if b"=" in line)
                return {"DISPLAY": display} | {name: known.get(name, "") for name in names}
    raise SystemExit(f"no program of this user has the display {display} and a message bus")


class Session:
    """The session's long-lived programs."""

    def __init__(self, run: Path, home: Path, token: str, size: str, display: str = "") -> None:
        self.run = run
        self.env = environment(run, home, token)
        if display:
            self.env |= of_display(display)
        self.home = home
        self.size = size
        self.children: list[subprocess.Popen[bytes]] = []

    def _spawn(self, *argv: str, fds: tuple[int, ...] = ()) -> None:
        with (self.run / "session.log").open("ab") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, cwd=self.home, pass_fds=fds
            )
        self.children.append(child)

    def start(self) -> None:
        """X and D-Bus at once, then what needs them. Raises SystemExit when one does not come up."""
        if not self.env.get("DISPLAY"):
            self._start_own()
        ready = self.run / "session.json.new"
        ready.write_text(json.dumps(self.env))
        ready.rename(self.run / "session.json")

    def _start_own(self) -> None:
        frames = self.run / "fb"
        frames.mkdir(exist_ok=True)
        # Else each user of the machine may look at the screen and type: its socket is open to all of them.
        xauthority = Path(self.env["XAUTHORITY"])
        xauthority.touch(mode=0o600)
        xauthority.write_bytes(_xauthority(os.urandom(COOKIE_BYTES)))
        from_x, x_says = os.pipe()
        from_bus, bus_says = os.pipe()
        x_args = ("-screen", "0", f"{self.size}x24", "-nolisten", "tcp", "-noreset", "-extension", "GLX")
        x_args += ("-fbdir", str(frames), "-auth", str(xauthority))
        self._spawn("Xvfb", "-displayfd", str(x_says), *x_args, fds=(x_says,))
        bus = f"--address={self.env['DBUS_SESSION_BUS_ADDRESS']}"
        self._spawn(
            "dbus-daemon", "--session", bus, "--nofork", "--nopidfile", f"--print-address={bus_says}", fds=(bus_says,)
        )
        os.close(x_says)
        os.close(bus_says)
        self.env["DISPLAY"] = ":" + _first_line(from_x, "the X server")
        _first_line(from_bus, "the message bus")
        self._spawn("openbox", "--sm-disable")
        self._spawn("/usr/libexec/at-spi-bus-launcher", "--launch-immediately")

    def serve(self, listener: socket.socket, owner: socket.socket | None) -> None:
        """One `sshd -i` per connection, until X ends or the `owner` of the first one lets that go.

        The kernel takes a sandbox along with its owner, but not one that the owner let go in its last moment. A virtual
        machine has no such connection: it ends from outside.
        """
        x = self.children[0]
        x_gone = os.pidfd_open(x.pid)
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(x_gone, select.POLLIN)
        if owner is not None:
            waiting.register(owner, select.POLLIN)
        while True:
            ready = {fd for fd, _ in waiting.poll()}
            self.children = [child for child in self.children if child.poll() is None]
            if x_gone in ready or (owner is not None and owner.fileno() in ready):
                return
            connection, _ = listener.accept()
            argv = ["/usr/sbin/sshd", "-i", "-e", "-f", str(self.run / "sshd_config")]
            with connection, (self.run / "session.log").open("ab") as log:
                child = subprocess.Popen(argv, stdin=connection, stdout=connection, stderr=log, env=self.env)
            self.children.append(child)


def _end_all() -> None:
    """Kill all that runs in this sandbox but its first process, which then has nothing left to wait for.

    That one goes with its parent only once it has asked the kernel for that, and an owner may die before.
    """
    with contextlib.suppress(ProcessLookupError):  # nothing else runs
        os.kill(-1, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Parse arguments and run until the session ends."""
    parser = argparse.ArgumentParser(prog="session")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--size", default="1280x720")
    parser.add_argument("--door", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--display", default="")
    args = parser.parse_args(argv)
    os.umask(0o022)
    session = Session(args.run, args.home, args.token, args.size, args.display)
    if args.keep is not None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of standard input ends us in order
        keep(session, args.keep, args.token)
        return 0
    if args.door is None:
        listener, owner = socket.create_server(("", args.port), backlog=16), None
    else:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(args.door / PLUG))
        listener.listen(16)
        if (owner := _let_go(listener)) is None:
            return 1
        signal.signal(signal.SIGCHLD, lambda *_: _bury())  # of a container it is the first process, and all orphans'
    try:
        session.start()
        session.serve(listener, owner)
    finally:
        _end_all()
    return 0


def _let_go(listener: socket.socket) -> socket.socket | None:
    """The first connection, once its owner has written there; None where the owner died, or never comes."""
    listener.settimeout(START_S)
    try:
        owner, _ = listener.accept()
    except TimeoutError:
        return None
    listener.settimeout(None)
    return owner if owner.recv(1) else None


DOOR = "agent.sock"  # of the session's folder
FDS = 3  # input, output, errors


def attach(argv: list[str]) -> int:
    """Have the session start the agent here."""
    parser = argparse.ArgumentParser(prog="attach")
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args(argv)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
        session.connect(str(args.run / DOOR))
        socket.send_fds(session, [b"."], range(FDS))
        session.recv(1)  # nothing comes but the end
    return 0


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


def sweep_left(argv: list[str]) -> int:
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
            order = os.read(0, 4096)
            if not order:
                return
            if order == b"freeze\n":
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
    below = descendants(own, *_bearing(token))
    return {pid: member for pid, member in below.items() if pid != own and not member.states <= ENDED}


def _bearing(token: str) -> list[int]:
    """Processes of this user that carry the session's token in their environment."""
    mark = f"{MARK}={token}".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or is another user's
                continue
            if marked:
                pids.append(int(entry.name))
    return pids


def sweep(token: str) -> None:
    """Kill all of the session, again until none is left or `SWEEP_S` are over: a dying parent may just have forked."""
    beyond: set[int] = set()  # of another user by now
    until = time.monotonic() + SWEEP_S
    while (pids := [pid for pid in members(token) if pid not in beyond]) and time.monotonic() < until:
        beyond |= kill(pids[:BATCH], END_S)


def stop(token: str) -> bool:
    """Stop all of the session, until two looks in turn find none that may run: one may miss an orphan's child.

    Whether that came within `STOP_S`.
    """
    until = time.monotonic() + STOP_S
    signalled: set[int] = set()
    beyond: set[int] = set()  # of another user by now
    clean = 0
    while clean < 2:
        if time.monotonic() > until:
            return False
        left = [pid for pid in running(members(token), signalled) if pid not in beyond]
        clean = 0 if left else clean + 1
        for pid in left:
            signalled.add(pid)
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                continue
            except PermissionError:
                beyond.add(pid)
    return True
