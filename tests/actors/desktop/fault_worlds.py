"""Where the desktops of each provider come from in the tests of faults, and what is seen of them from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import pytest
import test_provider_osworld
import test_provider_ssh

from actors.desktop.config import (
    ContainerConfig,
    E2bConfig,
    MachineConfig,
    ProviderConfig,
    QemuConfig,
    SandboxConfig,
    SshConfig,
)
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import Desktop, DesktopSpec, Provider
from actors.desktop.providers.container import LABEL
from actors.desktop.providers.qemu import machine
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.ssh import MARK, SessionProvider
from tests.actors.desktop.e2b_stand_in import KEY, TEMPLATE, StandInService
from tests.heard import until

ROOT = os.geteuid() == 0
SMALL_MIB = 96  # of a disk on which a desktop fits, and no more than one file of it
IMAGE = "localhost/computerrl-desktop:1"  # as the page of providers makes it


def has_image() -> bool:
    there = shutil.which("podman") and shutil.which("docker")
    return bool(there) and not subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode


lacking = not shutil.which(machine.PROGRAM) or not Path(QemuConfig().image_folder, "disk.qcow2").exists()
VM = (
    pytest.mark.proof,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(lacking, reason="make vm-image has not made an image here"),
)
KINDS = [
    pytest.param("sandbox"),
    pytest.param(
        "container",
        marks=pytest.mark.skipif(not shutil.which("podman") or not ROOT, reason="make containers; it needs root"),
    ),
    pytest.param("qemu", marks=VM),
    pytest.param("ssh"),
    pytest.param("osworld"),
    pytest.param("container elsewhere", marks=pytest.mark.skipif(not ROOT or not has_image(), reason="no such image")),
    pytest.param("e2b", marks=pytest.mark.skipif(not ROOT, reason="the stand-in enters namespaces")),
]


@contextlib.contextmanager
def small_disk(place: Path, mib: int = SMALL_MIB) -> Iterator[bool]:
    """Make the folder a disk of its own, where mounting is allowed: whether it is."""
    place.mkdir(mode=0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "none", str(place)]
    mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)
        shutil.rmtree(place)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("wb") as file:
        while file.write(bytes(4096)):
            file.flush()


def lines_of(pid: str) -> tuple[bytes, bytes]:
    """A process's command line and environment."""
    with contextlib.suppress(OSError):  # it ended
        return Path("/proc", pid, "cmdline").read_bytes(), Path("/proc", pid, "environ").read_bytes()
    return b"", b""


class World(ABC):
    """What the tests need to know of a kind of desktops."""

    config: ProviderConfig
    spec = DesktopSpec(memory_bytes=400 << 20)  # small, for other programs have desktops on the same machine

    def __init__(self, kind: str, disk: Path) -> None:
        self.kind = kind
        self.disk = disk

    async def open(self, owner: str) -> Provider:
        return await open_provider(self.config, owner)

    @abstractmethod
    def held_by(self, provider: Provider, desktop: Desktop) -> int:
        """The process that a desktop is gone with."""

    @abstractmethod
    def starting(self, provider: Provider) -> int:
        """The process of a desktop that boots; 0 while there is none."""

    @abstractmethod
    def known(self, provider: Provider) -> int:
        """How many desktops the provider counts."""

    @abstractmethod
    def left(self) -> list[str]:
        """What shows of desktops."""


class Here(World):
    """Sandboxes, containers and virtual machines."""

    def __init__(self, kind: str, disk: Path) -> None:
        super().__init__(kind, disk)
        place = str(disk)
        if kind == "container":
            self.config = ContainerConfig(state_dir=place, runtime="runc" if shutil.which("runc") else "")
        elif kind == "qemu":
            self.config = QemuConfig(state_dir=place)
            self.spec = DesktopSpec()  # a machine is as large as its image
        else:
            self.config = SandboxConfig(state_dir=place)

    def held_by(self, provider: Provider, desktop: Desktop) -> int:
        assert isinstance(provider, SandboxProvider)
        box = provider._sandboxes[desktop.name]
        assert box.init is not None
        return box.init.pid

    def starting(self, provider: Provider) -> int:
        assert isinstance(provider, SandboxProvider)
        return next((box.process.pid for box in provider._sandboxes.values() if box.process), 0)

    def known(self, provider: Provider) -> int:
        assert isinstance(provider, SandboxProvider)
        return len(provider._sandboxes)

    def left(self) -> list[str]:
        """Processes, mounts and containers that carry the folder's name or that of an owner in it, and groups."""
        place = str(self.disk)
        lines = [lines_of(entry.name)[0] for entry in Path("/proc").glob("[0-9]*")]
        traces = [line.decode("utf-8", "replace") for line in lines if place.encode() in line]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        traces += [line for line in mounts if place in line and f" {place} " not in line]
        if shutil.which("podman"):
            named = ["podman", "ps", "-aq", "--filter", f"label={LABEL}={place}"]
            traces += subprocess.run(named, capture_output=True, check=False).stdout.decode().split()
        return traces


class Elsewhere(World):
    """Sessions on machines that are reached by SSH, or in sandboxes at a URL: each with a /tmp of its own."""

    service: StandInService | None = None

    def _places(self) -> list[Path]:
        if self.service is None:
            return [self.disk / "machine" / "tmp"]
        return [sandbox.base / "tmp" for sandbox in self.service.sandboxes.values()]

    def _processes(self) -> list[tuple[int, bytes]]:
        """Those of sessions, with their command lines."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended
                if any(os.path.samefile(entry / "root" / "tmp", place) for place in self._places()):
                    line, env = lines_of(entry.name)
                    if b"/computerrl-" in line or f"{MARK}=".encode() in env:
                        found.append((int(entry.name), line))
        return found

    def _keeper(self) -> int:
        return next((pid for pid, line in self._processes() if {b"session", b"--keep"} <= {*line.split(b"\0")}), 0)

    def held_by(self, provider: Provider, desktop: Desktop) -> int:
        keeper = self._keeper()
        assert keeper, "no session is kept"
        return keeper

    def starting(self, provider: Provider) -> int:
        return self._keeper()

    def known(self, provider: Provider) -> int:
        assert isinstance(provider, SessionProvider)
        return len(provider._sessions)

    def left(self) -> list[str]:
        if self.service is not None:
            return [*self.service.sandboxes]
        folders = [str(folder) for place in self._places() for folder in place.glob("computerrl-*")]
        return folders + [line.decode("utf-8", "replace") for _, line in self._processes()]


class InContainers(Elsewhere):
    """Containers on a machine that is reached by SSH."""

    def _processes(self) -> list[tuple[int, bytes]]:
        lines = [(int(entry.name), lines_of(entry.name)[0]) for entry in Path("/proc").glob("[0-9]*")]
        place = f"{self.disk}/machine/tmp/computerrl-".encode()
        inside = sorted(
            ((pid, line) for pid, line in lines if place in line), key=lambda one: b"/guest\0session" in one[1]
        )
        return inside[::-1]

    def left(self) -> list[str]:
        named = ["podman", "ps", "--all", "--format", "{{.Names}} {{.Mounts}}"]
        listed = subprocess.run(named, capture_output=True, check=True, text=True).stdout.splitlines()
        return [*super().left(), *(line for line in listed if str(self.disk) in line)]


@contextlib.contextmanager
def docker_host(base: Path) -> Iterator[MachineConfig]:
    """A machine whose ordinary user may start containers: by docker's command line, which asks podman's service."""
    plug, user = base / "docker.sock", test_provider_ssh.USER
    (base / "tmp").mkdir(parents=True)
    (base / "passwd").write_text(test_provider_ssh.ACCOUNTS.replace("1000:1000", f"{user}:{user}"))
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    host_key.write_private_key(base / "host_key")
    client_key.write_public_key(base / "authorized_keys")
    client_key.write_private_key(base / "id")
    settings = test_provider_ssh.SSHD.replace("/home/worker", str(base)).replace("MaxSessions 2\n", "")  # as usual: 10
    (base / "sshd_config").write_text(settings)
    for path in base.iterdir():
        path.chmod(0o600 if path.name == "host_key" else 0o755)
        os.chown(path, user, -1)
    port = test_provider_ssh.free_port()
    podman = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
    sshd = [
        "bwrap", "--cap-add", "ALL", "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc",
        "--dev", "/dev", "--tmpfs", "/home", "--dir", "/home/worker", "--perms", "1777", "--tmpfs", "/tmp",
        "--bind", str(base), str(base), "--ro-bind", str(base / "passwd"), "/etc/passwd",
        "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--",
        "/usr/sbin/sshd", "-D", "-e", "-p", str(port), "-f", str(base / "sshd_config"),
    ]  # fmt: skip
    serving = [subprocess.Popen([*podman, "system", "service", "--time", "0", f"unix://{plug}"])]
    try:
        while not plug.exists():
            time.sleep(0.02)
        plug.chmod(0o666)
        serving.append(subprocess.Popen(sshd))
        yield MachineConfig(
            host="127.0.0.1", port=port, user="worker", client_key=str(base / "id"), folder=f"{base}/tmp", desktops=2,
            host_key=host_key.export_public_key().decode(), container=f"docker --host unix://{plug}", image=IMAGE,
        )  # fmt: skip
    finally:
        for one in serving[::-1]:
            one.kill()
            one.wait()


def listens(port: int) -> bool:
    with socket.socket() as plug:
        return plug.connect_ex(("127.0.0.1", port)) == 0


@contextlib.asynccontextmanager
async def world_of(kind: str, disk: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """The world of a kind, whose desktops, or their machines, have that disk."""
    if kind in ("sandbox", "container", "qemu"):
        yield Here(kind, disk)
        return
    world = Elsewhere(kind, disk)
    if kind == "e2b":
        monkeypatch.setenv("E2B_API_KEY", KEY)
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        async with StandInService() as world.service:
            url = world.service.url
            world.config = E2bConfig(url=url, sandbox_url=url, template=TEMPLATE, desktops=2, lifetime_s=30)
            yield world
        return
    made = test_provider_osworld.machine_in if kind == "osworld" else test_provider_ssh.machine_in
    if kind == "container elsewhere":
        world, made = InContainers(kind, disk), docker_host
    with made(disk / "machine") as one:
        world.config = SshConfig(machines=[one])
        await until(lambda: listens(one.osworld_port or one.port))
        yield world
