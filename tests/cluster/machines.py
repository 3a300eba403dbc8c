"""Machines of one cluster on this machine: network namespaces on a bridge, each with folders and a name of its own.

Invariant: a machine shares with the others the kernel and this checkout, but no network, `/tmp`, `/run` or host name.
When the context ends, no process is left in any of them, and no namespace.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
NETWORK = "10.77.0"
PORT = 6379
RAY = str(Path(sys.executable).parent / "ray")
OWN_FOLDERS = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run && hostname "$0" && exec sleep infinity'


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Machines:
    """`count` machines with room for `desktops` each. Number 0 has a Ray head that the others join by a token."""

    def __init__(self, count: int, desktops: int, logs: Path) -> None:
        self._mark = f"crl{os.getpid()}"
        self._count, self._logs = count, logs
        self._anchors: list[subprocess.Popen[bytes]] = []
        self._rays: dict[int, subprocess.Popen[bytes]] = {}
        self._desktops = desktops
        self.env = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

    def address(self, number: int) -> str:
        """Where the others reach it."""
        return f"{NETWORK}.{10 + number}"

    def name(self, number: int) -> str:
        """Its host name."""
        return f"{self._mark}-{number}"

    def build(self) -> None:
        """The switch and the machines, without a Ray."""
        switch = f"{self._mark}-s"
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for k in range(self._count):
            name = self.name(k)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")  # a raylet and its workers talk over it
            _ip("link", "add", "name", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{k}", "netns", switch)
            _ip("-n", name, "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", switch, "link", "set", f"p{k}", "master", "br0", "up")
            own = ["ip", "netns", "exec", name, "unshare", "--mount", "--uts", "bash", "-c", OWN_FOLDERS, name]
            self._anchors.append(subprocess.Popen(own))
        for anchor in self._anchors:
            until(lambda pid=anchor.pid: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", 20)

    def start(self, number: int, words: Sequence[str], log: Path, **more: Any) -> subprocess.Popen[bytes]:
        """A program on a machine; what it says goes to `log`."""
        enter = ["nsenter", "-t", str(self._anchors[number].pid), "-m", "-n", "-u", f"--wd={ROOT}"]
        with log.open("wb") as said:
            return subprocess.Popen([*enter, *words], env=self.env, stdout=said, stderr=said, **more)

    def start_ray(self, number: int) -> None:
        """`ray start --block`, as a service of the machine would run it."""
        role = ["--head", f"--port={PORT}", "--include-dashboard=false", "--num-cpus=0"]
        if number:
            role = [
                f"--address={self.address(0)}:{PORT}",
                "--num-cpus=4",
                f'--resources={{"desktops": {self._desktops}, "engines": 1}}',
            ]
        common = ["--disable-usage-stats", "--object-store-memory=80000000", "--block"]
        words = [RAY, "start", f"--node-ip-address={self.address(number)}", *role, *common]
        self._rays[number] = self.start(number, words, self._log(number), start_new_session=True)

    def _log(self, number: int) -> Path:
        return self._logs / f"ray-{number}.log"

    def ray_is_up(self, number: int, within_s: float) -> None:
        """Wait until a machine's Ray has joined. One that gave up is started again, as its service would."""
        log, deadline = self._log(number), time.monotonic() + within_s
        while "Ray runtime started" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            if self._rays[number].poll() is not None:
                self._kill(number)
                self.start_ray(number)
            time.sleep(0.2)

    def ray_ends(self, number: int, within_s: float) -> None:
        """Wait until a machine's Ray has ended by itself, and end what it has left there."""
        self._rays.pop(number).wait(within_s)
        self._kill(number)

    def cut(self, number: int) -> None:
        """Take the machine off the switch: no packet passes, and no side is told."""
        _ip("-n", f"{self._mark}-s", "link", "set", f"p{number}", "nomaster")

    def plug(self, number: int) -> None:
        """Put it back."""
        _ip("-n", f"{self._mark}-s", "link", "set", f"p{number}", "master", "br0")

    def processes(self, number: int) -> list[int]:
        """What runs in its network, without what holds its folders. A desktop's network is its own."""
        found = map(int, _ip("netns", "pids", self.name(number)).split())
        return [pid for pid in found if pid != self._anchors[number].pid]

    def raylet(self, number: int) -> int:
        """The machine's raylet."""
        return next(pid for pid in self.processes(number) if _comm(pid) == "raylet")

    def desktop_owners(self, number: int) -> list[str]:
        """Names of the folders that desktops' owners have there."""
        folder = Path(f"/proc/{self._anchors[number].pid}/root/run/computerrl")
        return [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []

    def _kill(self, number: int) -> None:
        for pid in self.processes(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(number), 20)

    def remove(self) -> None:
        """End everything in them, and them."""
        for k, anchor in enumerate(self._anchors):
            self._kill(k)
            anchor.kill()
            anchor.wait()
        for ray in self._rays.values():
            ray.wait(20)
        for name in [*map(self.name, range(self._count)), f"{self._mark}-s"]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextlib.contextmanager
def machines(count: int, desktops: int, logs: Path) -> Iterator[Machines]:
    """Some machines, built; removed afterwards."""
    made = Machines(count, desktops, logs)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def until(true: Any, within_s: float, say: str = "") -> None:
    """Wait until `true()` is; AssertionError after `within_s`."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {say}"
        time.sleep(0.1)
