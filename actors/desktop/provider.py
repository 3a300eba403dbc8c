"""The contract of a provider: its methods, and the desktop that they take.

Invariant: a `Desktop` can be reached with nothing but its fields, and the pinned host key proves that it is this
desktop. Only the provider that booted a desktop may destroy it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from actors.desktop.config import ProviderConfig, QemuConfig, SandboxConfig, ScreenConfig, SshConfig
from actors.desktop.faults import DesktopHealth
from actors.desktop.files.read_home import FileSeen, ReadLimits
from apis.observation import SCREEN
from apis.tasks.verify.verify import WantedFile

PROXY_PORT = 3128  # of a desktop's own loopback, where what it may reach of the network is


class SshAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where SSH answers: a Unix socket's path, or a host and a port."""

    socket: str = ""
    host: str = ""
    port: int = 0


class SshWay(msgspec.Struct, frozen=True, kw_only=True):
    """How SSH reaches a desktop, or the machine that it is on."""

    address: SshAddress
    username: str
    host_key: bytes  # OpenSSH public key line: the only one that a client may accept
    client_key: bytes  # OpenSSH private key

    def __repr__(self) -> str:  # the private key stays out of logs
        return f"{type(self).__name__}({self.address!r})"


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What the host sees of a desktop without asking it."""

    home: str  # the guest's HOME as a path on this host
    uid: int  # the user that the guest's processes are on this host
    init_pid: int  # first process of the desktop's process namespace; its death ends all the others
    cgroups: dict[str, str]  # folder by controller: memory, pids, cpu, ... (v1), or "unified" (v2)
    shared: str = ""  # folder of what all desktops of the provider see: accounts, the guest's code
    trial: str = ""  # folder for a copy of HOME, which is made when commands judge and goes with the desktop


class DesktopSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What kind of desktop to boot."""

    width: int = SCREEN[0]
    height: int = SCREEN[1]
    home_template: str = ""  # a folder copied to HOME; empty: the program's settings, LibreOffice's as set-up made them
    memory_bytes: int = 1500 << 20
    disk_bytes: int = 512 << 20
    processes: int = 600
    open_files: int = 512  # descriptors of one process
    terminals: int = 64
    network: bool = False  # whether its SSH server listens for the proxy

    @classmethod
    def of(cls, config: SandboxConfig, screen: ScreenConfig, *, network: bool = False) -> DesktopSpec:
        return cls(
            width=screen.width, height=screen.height, home_template=screen.home_template,
            memory_bytes=config.memory_mib << 20, disk_bytes=config.disk_mib << 20, processes=config.max_processes,
            open_files=config.open_files, terminals=config.terminals, network=network,
        )  # fmt: skip


class Desktop(SshWay, frozen=True, kw_only=True):
    """A running desktop."""

    name: str
    provider: str
    agent: tuple[str, ...]  # command line of the in-guest agent
    home: str  # HOME as the guest sees it
    screen: tuple[int, int] = SCREEN  # pixels
    outside: Outside | None = None
    warnings: tuple[str, ...] = ()  # limits that could not be set
    password: str = ""  # of the guest's user, who becomes root by it; "" where it can't

    def __repr__(self) -> str:  # key and password stay out of logs
        return f"Desktop({self.name!r}, {self.address!r})"


def has_root(provider: ProviderConfig) -> bool:
    """Whether the user of each of its desktops may become root by a password."""
    if isinstance(provider, SshConfig):
        return all(machine.password for machine in provider.machines)
    return isinstance(provider, QemuConfig) and bool(provider.client_password)


class Provider(ABC):
    """Boots, probes and destroys desktops. For the verifier it freezes them and reads their HOME."""

    @abstractmethod
    async def boot(self, spec: DesktopSpec) -> Desktop:
        """Start a desktop and return as soon as a connection to its endpoint will be answered or refused.

        Raises DesktopFault.
        """

    @abstractmethod
    async def probe(self, desktop: Desktop) -> DesktopHealth:
        """What the host sees; never talks to the agent and never raises for a desktop that is gone."""

    @abstractmethod
    async def destroy(self, desktop: Desktop) -> None:
        """End all of its processes and remove what it held. A second call does nothing."""

    @abstractmethod
    async def freeze(self, desktop: Desktop) -> None:
        """Stop all of its processes, so that its files no longer change. Raises DesktopFault."""

    @abstractmethod
    async def read_home(self, desktop: Desktop, wanted: list[WantedFile], limits: ReadLimits) -> list[FileSeen]:
        """What is wanted of HOME, in that order, read without the guest's help.

        A path that is missing, a link, too big or no workbook comes back as a refusal in its place. Raises
        DesktopFault.
        """

    @abstractmethod
    async def close(self) -> None:
        """Destroy all desktops that are left and remove the provider's own folder."""
