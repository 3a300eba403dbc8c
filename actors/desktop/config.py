"""What the deploy file says about desktops. Imports nothing that acts.

Invariant: every default works on one small machine; bytes, seconds and counts are in the names.
"""

from __future__ import annotations

import os

import msgspec

from runtime.errors import ConfigError
from runtime.quarantine import QuarantinePolicy

# An idle desktop takes about 54 MiB beside what desktops share, one with Calc about 148 (README): with less than this
# there is no room to start one and an application.
MEMORY_LEAST_MIB = 128
MEMORY_MOST_MIB = 1 << 20
DISK_LEAST_MIB = 32  # 0 would mean no limit to the kernel
PROCESSES_LEAST = 50  # threads count
# Of those measured Chromium has most, 184 with a handful of pages.
OPEN_FILES_LEAST = 256
TERMINALS_LEAST = 4


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sandbox"):
    """Desktops as sandboxes on the machine of the actor host."""

    state_dir: str = "/run/computerrl"  # short: a Unix socket's path holds 107 bytes
    memory_mib: int = 1500  # of one desktop at most; its programs are killed above it
    disk_mib: int = 512  # of one desktop's files
    processes: int = 600  # of one desktop at the same time, at most
    open_files: int = 512  # descriptors of one of its processes, at most
    terminals: int = 64  # of one desktop at the same time, at most

    def __post_init__(self) -> None:
        if not MEMORY_LEAST_MIB <= self.memory_mib <= MEMORY_MOST_MIB:
            limits = f"it is from {MEMORY_LEAST_MIB}, for a desktop to start in, to {MEMORY_MOST_MIB}"
            raise ConfigError(f"desktops.provider.memory_mib is {self.memory_mib}: {limits}")
        if self.disk_mib < DISK_LEAST_MIB:
            limits = f"it is at least {DISK_LEAST_MIB}, for a HOME and what applications keep there"
            raise ConfigError(f"desktops.provider.disk_mib is {self.disk_mib}: {limits}")
        if self.processes < PROCESSES_LEAST:
            limits = f"it is at least {PROCESSES_LEAST}, for a session and an application"
            raise ConfigError(f"desktops.provider.processes is {self.processes}: {limits}")
        if self.open_files < OPEN_FILES_LEAST:
            limits = f"it is at least {OPEN_FILES_LEAST}, for an application to start"
            raise ConfigError(f"desktops.provider.open_files is {self.open_files}: {limits}")
        if self.terminals < TERMINALS_LEAST:
            limits = f"it is at least {TERMINALS_LEAST}, for a terminal in which something else opens one"
            raise ConfigError(f"desktops.provider.terminals is {self.terminals}: {limits}")


class MachineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine that is reached by SSH and has the guest packages."""

    host: str  # name or address
    user: str  # who logs in
    client_key: str  # path of an OpenSSH private key
    host_key: str  # the machine's public key, as in known_hosts without the names
    port: int = 22  # of its SSH server
    seats: int = 1  # desktops at the same time
    folder: str = "/tmp"  # noqa: S108 - the machine's own place for folders of sessions


class HostsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="hosts"):
    """Desktops as sessions of an ordinary user on machines that somebody else set up."""

    machines: list[MachineConfig]

    @property
    def seats(self) -> int:
        """Desktops at the same time on all machines."""
        return sum(machine.seats for machine in self.machines)

    def share(self, index: int, of: int) -> HostsConfig:
        """What process `index` of `of` may use: together they use no machine beyond its seats."""
        parts = [
            (machine, machine.seats // of + ((index + number) % of < machine.seats % of))
            for number, machine in enumerate(self.machines)
        ]
        return HostsConfig(machines=[msgspec.structs.replace(one, seats=seats) for one, seats in parts if seats])


BOOTS_LEAST = 2


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Desktops that stand ready."""

    spares: int = 1
    boots_at_once: int = 0  # of one desktop process; 0: `BOOTS_LEAST` or a quarter of the processors it may use
    boot_timeout_s: float = 30.0
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 30.0
    lease_s: float = 900.0  # a desktop that was not given back by then is taken back
    quarantine: QuarantinePolicy = QuarantinePolicy()  # of this host and of its image

    @property
    def boots(self) -> int:
        """How many boots may be under way, in the process that asks."""
        return self.boots_at_once or max(BOOTS_LEAST, len(os.sched_getaffinity(0)) // 4)


class ScreenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desktops' screen and HOME."""

    width: int = 1280
    height: int = 720
    home_template: str = (
        ""  # a folder copied to every HOME; empty: the program's settings, LibreOffice's as set-up made them
    )


class DesktopsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that one actor host needs to have desktops."""

    provider: SandboxConfig | HostsConfig = SandboxConfig()
    pool: PoolConfig = PoolConfig()
    screen: ScreenConfig = ScreenConfig()
