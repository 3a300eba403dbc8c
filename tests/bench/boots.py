"""What booting many desktops on three machines takes of the one process that has them.

The machines are network namespaces on a bridge, with simulated desktops behind real SSH servers. The pool, its SSH
provider and the links are a run's own. Figures of cost are processor time: three machines share this one's cores here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import msgspec
import psutil

from actors.cluster.runs.run import raise_file_limit
from actors.desktop.config import MachineConfig, PoolConfig, SshConfig
from actors.desktop.pool.pool import DesktopPool, boots_at_once
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.ssh import SshProvider
from runtime.errors import ConfigError
from runtime.system import run as run_loop
from tests.bench.report import Measured, Target, median, show
from tests.bench.seats.standins import reference_round
from tests.cluster.machines import Machines, until
from tests.simulated_desktops import MODULE, keys

MACHINES = 3
COUNTS = (1_000, 10_000)  # by calculation
WAIT_S = 900.0
ROUNDS = 20
PING_S = 60.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    desktops: int = 500


class Boots(msgspec.Struct, frozen=True, kw_only=True):
    """All desktops at once, by one pool; costs are of its process for one desktop."""

    desktops: int
    at_once: int  # boots
    seconds: float
    per_s: float
    cpu_ms: float
    ping_ms: float  # processor time of one call and its answer
    kib: float
    descriptors: float


class BootsResult(Measured, frozen=True, kw_only=True):
    """`machine_ms` is what a simulated desktop costs its machine."""

    boots: Boots
    machine_ms: float
    reference_ms: float | None
    cores_by_calculation: dict[int, float]  # that one boot of each desktop in a minute takes
    mib_by_calculation: dict[int, float]
    descriptors_by_calculation: dict[int, float]


class _Plain(Machines):
    """Machines without Ray."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove)
            self._build()
            undo.pop_all()
        return self


async def boot_all(machines: list[MachineConfig], count: int) -> Boots:
    """Boot `count` desktops and give them back."""
    config, process = SshConfig(machines=machines), psutil.Process()
    at_once = boots_at_once(config, 1, os.cpu_count() or 1, 1 << 20)
    pool = DesktopPool(
        SshProvider(config), DesktopSpec(), PoolConfig(warm_pool=0, boots_at_once=at_once, boot_timeout_s=WAIT_S)
    )
    first = await pool.acquire(WAIT_S)
    memory, files, cpu, began = process.memory_info().rss, process.num_fds(), time.process_time(), time.monotonic()
    had = [first, *await asyncio.gather(*(pool.acquire(WAIT_S) for _ in range(count - 1)))]
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    kib, files = (process.memory_info().rss - memory) / 1024, process.num_fds() - files
    pinged = time.process_time()
    await asyncio.gather(*(booted.link.call("ping", timeout_s=PING_S) for booted in had))
    pinged = time.process_time() - pinged
    for booted in had:
        pool.retire(booted)
    await pool.close()
    more = count - 1
    return Boots(
        desktops=count, at_once=at_once, seconds=seconds, per_s=more / seconds, cpu_ms=1e3 * cpu / more,
        ping_ms=1e3 * pinged / count, kib=kib / more, descriptors=files / more,
    )  # fmt: skip


def measure(wanted: Options) -> BootsResult:
    """Build the machines, boot in the first one's network, and take everything away. Raises ConfigError."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise ConfigError("network namespaces need root and the program ip")
    load, folder = os.getloadavg()[0], Path(tempfile.mkdtemp(prefix="computerrl-boots-", dir="/var/tmp"))
    rounds = [reference_round() for _ in range(ROUNDS)]
    try:
        config, machine = keys(folder, "text")
        served = msgspec.structs.replace(config, host="0.0.0.0")
        with _Plain([{}] * MACHINES, folder) as machines:
            words = [sys.executable, "-m", MODULE, msgspec.json.encode(served).decode()]
            logs = [folder / f"machine-{k}.log" for k in range(MACHINES)]
            servers = [machines.start(k, words, logs[k]) for k in range(MACHINES)]
            each = -(-wanted.desktops // MACHINES)
            made = []
            for k, log in enumerate(logs):
                until(lambda at=log: at.exists() and at.read_text().strip().isdigit(), 120.0, f"machine {k}")  # type: ignore[misc]
                port, host = int(log.read_text()), machines._address(k)
                made.append(msgspec.structs.replace(machine, host=host, port=port, desktops=each))
            order = msgspec.json.encode((made, wanted.desktops)).decode()
            child = machines.entered(0, [sys.executable, "-m", "tests.bench.boots", order])
            output = subprocess.run(child, stdout=subprocess.PIPE, check=True, timeout=2 * WAIT_S).stdout
            spent = sum(sum(psutil.Process(server.pid).cpu_times()[:2]) for server in servers)
            for server in servers:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder)
    boots = msgspec.json.decode(output, type=Boots)
    target = Target(
        name="cores of a boot of each of 1,000 in a minute", measured=boots.cpu_ms / 60, bound=1.0, unit="cores"
    )
    return BootsResult(
        load_at_start=load,
        boots=boots,
        machine_ms=1e3 * spent / wanted.desktops,
        reference_ms=median(rounds),
        cores_by_calculation={count: count * boots.cpu_ms / 60e3 for count in COUNTS},
        mib_by_calculation={count: count * boots.kib / 1024 for count in COUNTS},
        descriptors_by_calculation={count: count * boots.descriptors for count in COUNTS},
        targets=[target],
    )


def run(wanted: Options) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(measure(wanted))


def main(order: str) -> None:
    """Boot as a process within a machine, and print the figures."""
    raise_file_limit()
    machines, count = msgspec.json.decode(order, type=tuple[list[MachineConfig], int])
    sys.stdout.buffer.write(msgspec.json.encode(run_loop(boot_all(machines, count))))


if __name__ == "__main__":
    main(sys.argv[1])
