"""What all desktops of a machine may have together, and the share of each.

Invariant: the limits of all planned desktops never add up to more memory or processes than the machine has for them.
Where even the least limits would, nothing is planned.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from actors.desktop.config import MEMORY_LEAST_MIB, OPEN_FILES_LEAST, PROCESSES_LEAST, TERMINALS_LEAST, SandboxConfig
from actors.desktop.providers.sandbox import owners
from actors.desktop.providers.sandbox.cgroups import GroupBounds, held, own_limits
from runtime.errors import ConfigError

RUN_BYTES = 2 << 30  # for the run itself: learner, sampler and ledger
SHARE = 0.85  # of the other things of which the machine has a number; at most this of its memory, too
KERNEL = Path("/proc/sys")


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What all desktops of this machine may have together."""

    memory_mib: int
    processes: int
    open_files: int
    terminals: int


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """What the planned desktops may take of one thing."""

    name: str
    unit: str
    desktops: int
    each: int  # of one desktop
    asked: int  # likewise, by the settings
    room: int  # of the machine, for all

    @property
    def total(self) -> int:
        return self.each * self.desktops

    @property
    def line(self) -> str:
        lowered = f" instead of {self.asked}" if self.each < self.asked else ""
        most = f"at most {self.each}{lowered} for each of {self.desktops} desktops"
        what = f"this machine's {self.room} {self.unit}".rstrip()
        return f"{most}: {self.total} {'of' if self.total <= self.room else 'are more than'} {what}"


def room() -> Room:
    """What this machine, and the control groups that this process lies in, have for desktops."""
    memory = min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *own_limits("memory")])
    ids = [_kernel("kernel/pid_max"), _kernel("kernel/threads-max"), *own_limits("pids")]
    return Room(
        memory_mib=memory_for_desktops(memory) >> 20,
        processes=int(min(ids) * SHARE),
        open_files=int(_kernel("fs/file-max") * SHARE),
        terminals=_kernel("kernel/pty/max") - _kernel("kernel/pty/reserve"),
    )


def of_this_process(folder: Path) -> Room:
    """This process's part of `room`: as much as each process of its run that has a folder below `folder`.

    They have the same plan, so they share alike. What desktops of other runs may take now is taken off before: a run
    with one seat must not halve the limits of one with many. Their control groups tell it; without them it is nothing.
    To be called once this process's own folder is there, so that of two which begin together one sees both.
    """
    runs, processes = owners.sharing(folder)

    def another(desktop: str) -> bool:
        owner = owners.owner_of(desktop)
        return owner is None or owner.run not in runs

    there = _less(room(), held(another))
    return Room(**{name: getattr(there, name) // processes for name in Room.__struct_fields__})


def free() -> Room:
    """What is left of `room` beside the desktops that are there."""
    return _less(room(), held())


def _less(there: Room, taken: GroupBounds) -> Room:
    memory = max(0, there.memory_mib - (taken.memory_bytes >> 20))
    return msgspec.structs.replace(there, memory_mib=memory, processes=max(0, there.processes - taken.processes))


def _kernel(name: str) -> int:
    return int((KERNEL / name).read_text())


def memory_for_desktops(total_bytes: int) -> int:
    """Of a machine's memory (bytes): all but a share, at least what a run takes, and half of a small machine's."""
    kept = max(RUN_BYTES, int(total_bytes * (1 - SHARE)))
    return total_bytes - min(kept, total_bytes // 2)


def fitted(
    config: SandboxConfig, seats: int, spares: int, there: Room, *, key: str = "desktops.count"
) -> SandboxConfig:
    """The limits of each of `seats` and `spares` desktops: those of `config`, or less where together they pass what is
    `there`.

    Raises ConfigError, which names `key`, where the least memory or processes don't fit. Open files and terminals are
    lowered to their least; whether the machine has that many is said by `sums`.
    """
    desktops = seats + spares
    memory, ids = (there.memory_mib, MEMORY_LEAST_MIB, "MiB of memory"), (there.processes, PROCESSES_LEAST, "processes")
    of, least, what = min(memory, ids, key=lambda part: part[0] // part[1])
    if of // least < desktops:
        has = f"this machine has {of} {what} for desktops, which take at least {least} each"
        most = of // least - spares
        ready = f", beside {spares} that stand ready" if spares else ""
        mend = f"it is at most {most}{ready}" if most > 0 else f"too few for one{ready}"
        raise ConfigError(f"{key} is {seats}: {has}: {mend}")
    processes = min(config.max_processes, there.processes // desktops)
    files = max(OPEN_FILES_LEAST, there.open_files // (desktops * processes))
    return msgspec.structs.replace(
        config,
        memory_mib=min(config.memory_mib, there.memory_mib // desktops),
        max_processes=processes,
        open_files=min(config.open_files, files),
        terminals=min(config.terminals, max(TERMINALS_LEAST, there.terminals // desktops)),
    )


def sums(config: SandboxConfig, seats: int, spares: int, there: Room) -> list[Sum]:
    """What so many desktops may take together. Raises ConfigError like `fitted`."""
    lowered = fitted(config, seats, spares, there)
    parts = [
        ("memory", "MiB", lowered.memory_mib, config.memory_mib, there.memory_mib),
        ("processes", "", lowered.max_processes, config.max_processes, there.processes),
        ("open files", "", _files(lowered), _files(config), there.open_files),
        ("terminals", "", lowered.terminals, config.terminals, there.terminals),
    ]
    return [
        Sum(name=name, unit=unit, desktops=seats + spares, each=each, asked=asked, room=most)
        for name, unit, each, asked, most in parts
    ]


def _files(config: SandboxConfig) -> int:
    return config.max_processes * config.open_files
