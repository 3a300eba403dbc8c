"""Machines of one cluster on this machine: network namespaces on a bridge, each with folders and a name of its own.

Invariant: a machine shares with the others the kernel and this checkout, but no network, `/tmp`, `/run` or host name.
Its Ray is kept up as a service of the machine would keep it. When the context ends, no process is left in any of them,
and no namespace. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from runtime.errors import ConfigError

NETWORK = "10.77.0"
PORT = 6379
CPUS = 4  # that each machine's Ray says it has
RAY = str(Path(sys.executable).parent / "ray")
JOINED = "Ray runtime started"
SERVICES = ("sshd", "sshfs", "ssh", "sftp-server")  # of a machine's own system: they outlive its Ray
SSHD = """
HostKey {keys}/host
AuthorizedKeysFile {keys}/client.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
"""
OWN_FOLDERS = 'mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /run && hostname "$0" && exec sleep infinity'
LOOK_S, END_S = 0.2, 20.0
SHOWN = 12  # lines of the log of a Ray that does not come up


class Machines:
    """Number k has what `has[k]` names. Number 0 has a Ray head that the others join by a token."""

    def __init__(self, has: Sequence[Mapping[str, float]], logs: Path) -> None:
        self._mark = f"crl{os.getpid()}"
        self._has, self._logs = has, logs
        self._anchors: list[subprocess.Popen[bytes]] = []
        self._services: list[threading.Thread] = []
        self._mounting: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        # A raylet has its workers, and thereby the hosts, at niceness 15: beside other work here they would starve.
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_worker_niceness": "0"}
        self.env = os.environ | ray

    @property
    def ray(self) -> str:
        """The head's HOST:PORT."""
        return f"{self._address(0)}:{PORT}"

    def name(self, number: int) -> str:
        """The host name of machine `number`."""
        return f"{self._mark}-{number}"

    def __enter__(self) -> Self:
        """Build the machines. Raises ConfigError without Ray, and CalledProcessError where `ip` refuses."""
        if not Path(RAY).is_file():
            raise ConfigError("machines of a cluster need Ray, which is not installed: make ray")
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove)
            self._build()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _build(self) -> None:
        switch = self._switch
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for k in range(len(self._has)):
            name = self.name(k)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")  # a raylet and its workers talk over it
            _ip("link", "add", "name", "eth0", "netns", name, "type", "veth", "peer", "name", f"p{k}", "netns", switch)
            _ip("-n", name, "addr", "add", f"{self._address(k)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", switch, "link", "set", f"p{k}", "master", "br0", "up")
            # Not by `ip netns exec`, which hides the control groups: desktops would be without limits.
            entered = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "--uts"]
            own = [*entered, "bash", "-c", OWN_FOLDERS, name]
            self._anchors.append(subprocess.Popen(own))
        for anchor in self._anchors:
            until(lambda pid=anchor.pid: _comm(pid) == "sleep", END_S, "folders of a machine")  # type: ignore[misc]

    def entered(self, number: int, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on a machine."""
        return ["nsenter", "-t", str(self._anchors[number].pid), "-m", "-n", "-u", f"--wd={Path.cwd()}", *words]

    def start(self, number: int, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """A program on a machine, in a session of its own; what it says is added to `log`."""
        with log.open("ab") as said:
            return subprocess.Popen(
                self.entered(number, words), env=self.env, stdout=said, stderr=said, start_new_session=True
            )

    def mount(self, number: int, folder: Path) -> None:
        """Have a machine see `folder` of machine 0 by sshfs, and as nothing else. Raises TimeoutError."""
        keys = self._logs / "keys"
        keys.mkdir()
        for name in ("host", "client"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
            subprocess.run(words, check=True, timeout=END_S)
        (keys / "sshd").write_text(SSHD.format(keys=keys))
        serve = f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {keys}/sshd"
        options = f"ssh_command=ssh -i {keys}/client -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
        source = f"root@{self._address(0)}:{folder}"
        # Without a cache of its folders, so that a file which another machine has just made is there.
        look = f"until sshfs -f -o dir_cache=no,reconnect -o '{options}' {source} {folder}; do sleep {LOOK_S}; done"
        for at, words in ((0, serve), (number, f"mount -t tmpfs tmpfs {folder} && {look}")):
            self._mounting.append(self.start(at, ["bash", "-c", words], self._logs / f"ssh-{at}.log"))
        until(lambda: f"{folder} fuse.sshfs" in self.mounts(number).read_text(), END_S, f"sshfs on machine {number}")

    def serve(self) -> None:
        """Have every machine's Ray started, and started again where it ends, as a service of the machine does.

        A head that has come up once stays ended: the run was on it.
        """
        for number in range(len(self._has)):
            service = threading.Thread(target=self._keep_up, args=(number,), name=f"ray {number}", daemon=True)
            self._services.append(service)
            service.start()

    def until_served(self, within_s: float) -> None:
        """Wait until every machine's Ray is up. Raises TimeoutError, which ends with the last lines of that Ray."""
        deadline = time.monotonic() + within_s
        for number in range(len(self._has)):
            what = f"Ray on machine {number}"
            try:
                until(lambda k=number: self.joined(k), deadline - time.monotonic(), what)  # type: ignore[misc]
            except TimeoutError as error:
                said = " | ".join(self._said(number).strip().splitlines()[-SHOWN:])
                raise TimeoutError(f"not within {within_s:g} s: {what}: {said or 'it said nothing'}") from error

    def joined(self, number: int) -> int:
        """How often the machine's Ray has come up."""
        return self._said(number).count(JOINED)

    def log(self, number: int) -> Path:
        """The file with the output of the machine's Ray."""
        return self._logs / f"ray-{number}.log"

    def cut(self, number: int) -> None:
        """Take the machine off the switch: no packet passes, and no side is told."""
        _ip("-n", self._switch, "link", "set", f"p{number}", "nomaster")

    def plug(self, number: int) -> None:
        """Connect the machine to the switch again."""
        _ip("-n", self._switch, "link", "set", f"p{number}", "master", "br0")

    def kill_raylet(self, number: int) -> bool:
        """Kill what ties the machine to the cluster; False where it is not up."""
        for pid in self.processes(number):
            if _comm(pid) == "raylet":
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def processes(self, number: int) -> list[int]:
        """What runs in its network, without what holds its folders. A desktop's network is its own."""
        there = map(int, _ip("netns", "pids", self.name(number)).split())
        kept = {self._anchors[number].pid, *(mounting.pid for mounting in self._mounting)}
        return [pid for pid in there if pid not in kept and _comm(pid) not in SERVICES]

    def hosts(self, number: int) -> list[int]:
        """Processes of runs that a cluster has placed there."""
        return [pid for pid in self.processes(number) if b"runtime.hosts.child" in _words(pid)]

    def folder(self, number: int, path: str) -> Path:
        """A folder of the machine, as this process reaches it."""
        return Path(f"/proc/{self._anchors[number].pid}/root/{path}")

    def mounts(self, number: int) -> Path:
        """The list of what is mounted on the machine."""
        return Path(f"/proc/{self._anchors[number].pid}/mounts")

    def _remove(self) -> None:
        """End the processes of all machines, then remove the machines. A failure on a machine keeps no other."""
        self._over.set()
        with contextlib.ExitStack() as last_first:
            for name in [*map(self.name, range(len(self._has))), self._switch]:
                words = ["ip", "netns", "del", name]
                last_first.callback(subprocess.run, words, check=False, capture_output=True, timeout=END_S)
            for service in self._services:
                last_first.callback(service.join, END_S)
            for mounting in self._mounting:
                last_first.callback(mounting.wait, END_S)
                last_first.callback(os.killpg, mounting.pid, signal.SIGKILL)
            for k, anchor in enumerate(self._anchors):
                last_first.callback(anchor.wait, END_S)
                last_first.callback(anchor.kill)
                last_first.callback(self._kill, k)

    @property
    def _switch(self) -> str:
        return f"{self._mark}-s"

    def _address(self, number: int) -> str:
        return f"{NETWORK}.{10 + number}"

    def _said(self, number: int) -> str:
        """The output of the machine's Ray so far."""
        log = self.log(number)
        return log.read_text(errors="replace") if log.is_file() else ""

    def _keep_up(self, number: int) -> None:
        role = ["--head", f"--port={PORT}", "--include-dashboard=false"] if not number else [f"--address={self.ray}"]
        has = [f"--num-cpus={CPUS}", f"--resources={json.dumps(dict(self._has[number]))}"]
        common = ["--disable-usage-stats", "--object-store-memory=80000000", "--block"]
        words = [RAY, "start", f"--node-ip-address={self._address(number)}", *role, *has, *common]
        while not self._over.wait(LOOK_S):  # a Ray that ends at once must not take the processor
            self.start(number, words, self.log(number)).wait()
            if not number and self.joined(0):  # a new head is another cluster, and killing all here would end the run
                return
            self._kill(number)

    def _kill(self, number: int) -> None:
        def killed() -> bool:
            there = self.processes(number)
            for pid in there:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not there

        until(killed, END_S, f"the end of all on machine {number}")


def until(true: Callable[[], object], within_s: float, what: str) -> None:
    """Wait until `true()` is. Raises TimeoutError after `within_s`, naming `what` was waited for."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(LOOK_S)


def gone(pid: int) -> bool:
    """Whether a process has ended, buried or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=END_S).stdout


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
