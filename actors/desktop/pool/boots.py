"""How many desktops a process may boot at once, where the deploy file does not say.

Invariant: all processes of a run together boot no more desktops at once than their machines bear. Each process may
always boot `BOOTS_LEAST`. Pure.
"""

from __future__ import annotations

from functools import singledispatch

from actors.desktop.config import SandboxConfig, SshConfig

BOOTS_LEAST = 2  # a boot mostly waits for its parts: even one core gains from a second
CORES_EACH = 4  # the other cores are for desktops in use
MEMORY_EACH_MIB = 256  # an X server, a session and an application, before their limits are known to hold
DESKTOPS_EACH = 8  # of an SSH machine: episodes last over eight times as long as boots
# OpenSSH begins to drop connections at random when ten are not logged in yet (MaxStartups); each boot opens some.
LOGINS_AT_ONCE = 10


@singledispatch
def boots_at_once(provider: object, processes: int, cores: int, memory_mib: int) -> int:
    """Boots at once of one of `processes` processes alike.

    `cores` and `memory_mib` (for all desktops) are of the machine where that process runs.
    """
    raise TypeError(f"{type(provider).__name__} names no provider")


@boots_at_once.register
def _(_provider: SandboxConfig, processes: int, cores: int, memory_mib: int) -> int:
    return max(BOOTS_LEAST, min(cores // CORES_EACH, memory_mib // MEMORY_EACH_MIB) // processes)


@boots_at_once.register
def _(provider: SshConfig, processes: int, cores: int, memory_mib: int) -> int:
    # `provider` is this process's share, and the work of a boot is the machines'.
    each = max(1, LOGINS_AT_ONCE // processes)
    return max(BOOTS_LEAST, sum(min(each, machine.desktops // DESKTOPS_EACH) for machine in provider.machines))
