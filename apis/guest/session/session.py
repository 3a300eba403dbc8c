"""Starts one desktop session (X, D-Bus, window manager, accessibility) and keeps it until its owner lets go.

Invariant: a client that gets through to the agent finds an X server that answers. `session.json` is written, and
connections are accepted, only after the server does. When this process ends, nothing it started goes on.

Two ways in: with `--listen-fd` (a sandbox) every connection to that socket gets its own `sshd -i`. With `--keep` (a
machine of its own, reached by SSH) the session lasts as long as standard input stays open.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
from pathlib import Path

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
    found = b""
    for family, address in addresses:
        fields = (address, b"", b"MIT-MAGIC-COOKIE-1", cookie)
        found += struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)
    return found


class Session:
    """The session's long-lived programs."""

    def __init__(self, run: Path, home: Path, token: str, size: str) -> None:
        self.run = run
        self.env = environment(run, home, token)
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
        ready = self.run / "session.json.new"
        ready.write_text(json.dumps(self.env))
        ready.rename(self.run / "session.json")

    def serve(self, listener: socket.socket, owner: int) -> None:
        """One `sshd -i` per connection, until X ends or no process holds the other end of the pipe `owner` any more.

        The kernel takes a sandbox along with its owner, but not one that the owner let go in its last moment.
        """
        x = self.children[0]
        x_gone = os.pidfd_open(x.pid)
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(x_gone, select.POLLIN)
        waiting.register(owner, select.POLLHUP)
        while True:
            ready = {fd for fd, _ in waiting.poll()}
            self.children = [child for child in self.children if child.poll() is None]
            if x_gone in ready or owner in ready:
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
    parser.add_argument("--listen-fd", type=int)
    parser.add_argument("--go-fd", type=int)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args(argv)
    os.umask(0o022)
    session = Session(args.run, args.home, args.token, args.size)
    if args.keep is not None:
        from guest.session.keeper import keep

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of standard input ends us in order
        keep(session, args.keep, args.token)
        return 0
    if not os.read(args.go_fd, 1):
        return 1  # the owner died before it let this session start
    os.set_inheritable(args.go_fd, False)
    listener = socket.socket(fileno=args.listen_fd)
    listener.set_inheritable(False)
    try:
        session.start()
        session.serve(listener, args.go_fd)
    finally:
        _end_all()
    return 0
