"""Where the desktops of each provider come from in the tests of faults, and what is seen of them from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import test_provider_osworld
import test_provider_ssh

from actors.desktop.config import ContainerConfig, E2bConfig, ProviderConfig, QemuConfig, SandboxConfig, SshConfig
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
        return self._keeper()

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
    module = test_provider_osworld if kind == "osworld" else test_provider_ssh
    with module.machine_in(disk / "machine") as one:
        world.config = SshConfig(machines=[one])
        await until(lambda: listens(one.osworld_port or one.port))
        yield world
