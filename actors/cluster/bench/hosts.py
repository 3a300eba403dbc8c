"""What many actors in one host process cost the runtime, in processor time.

Invariant: every figure is processor time of the host that does the work, so that what else runs here does not count.
The figures of the smallest host stand beside those of the largest: a cost per actor should not grow with their number.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from actors.cluster import output
from actors.cluster.bench.report import Measured, Target, show
from runtime.actor import Actor
from runtime.errors import ConfigError
from runtime.logs.reader import LogWatch
from runtime.processor import process_s
from runtime.system import ActorSpec, ActorSystem
from runtime.system import run as run_loop
from runtime.waits import waiting

WAITS = 2  # of each actor, as a seat has
TIMES = 5
GROWTH = 4.0  # a linear cost per actor, with what larger tables cost the caches; a quadratic one grows as the actors
WAIT_S = 3600.0


class HostFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One host, in milliseconds of processor time; of a status and a start for all its actors together."""

    actors: int
    start_ms: float
    status_ms: float
    look_ms: float  # at the run's logs, as `logs -f` takes one, when nothing is new
    stop_ms: float
    descriptors: int


class HostsResult(Measured, frozen=True, kw_only=True):
    """All that `bench hosts` prints."""

    waits_each: int = WAITS
    hosts: list[HostFigures]


class Waiter(Actor):
    """Waits for something, `WAITS` times over."""

    async def on_start(self) -> None:
        for n in range(WAITS):
            self.ctx.spawn(self._wait(f"part {n}"), f"wait {n}")

    async def _wait(self, what: str) -> None:
        async with waiting(self.ctx.name, "bench", what, WAIT_S):
            await asyncio.sleep(WAIT_S)


async def _cpu_ms(work: Callable[[], Awaitable[Any]], times: int = 1) -> float:
    """The least of `times`: the garbage collector and what else runs here only add."""
    took = []
    for _ in range(times):
        began = process_s()
        await work()
        took.append(1e3 * (process_s() - began))
    return min(took)


async def _one(folder: Path, count: int) -> HostFigures:
    system = ActorSystem(folder)
    await system.start()
    try:
        specs = [ActorSpec(name=f"waiter/{n}", factory=Waiter) for n in range(count)]
        start_ms = await _cpu_ms(lambda: system.spawn(*specs))
        status_ms = await _cpu_ms(system.statuses, TIMES)
        watch = LogWatch(folder)
        try:
            watch.new()
            look_ms = await _cpu_ms(lambda: asyncio.to_thread(watch.new), TIMES)
        finally:
            watch.close()
        descriptors = psutil.Process().num_fds()
    finally:
        stop_ms = await _cpu_ms(system.stop)
    return HostFigures(
        actors=count, start_ms=start_ms, status_ms=status_ms, look_ms=look_ms, stop_ms=stop_ms, descriptors=descriptors
    )


def counts_of(text: str) -> list[int]:
    """Numbers of actors, smallest first. Raises ConfigError."""
    counts = sorted({int(word) for word in text.split(",") if word.strip().isdigit()})
    if len(counts) < 2 or len(counts) != len(text.split(",")):
        raise ConfigError(f"--actors needs two or more different numbers like 100,2000, not {text!r}")
    return counts


async def _measure(counts: list[int], folder: Path) -> list[HostFigures]:
    return [await _one(folder / str(count), count) for count in counts]


def measure(counts: list[int]) -> HostsResult:
    """Measure hosts of so many actors."""
    load = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="computerrl-hosts-"))
    try:
        hosts = run_loop(_measure(counts, folder))
    finally:
        shutil.rmtree(folder)
    small, large = hosts[0], hosts[-1]
    growth = (large.status_ms / large.actors) / (small.status_ms / small.actors)
    name = f"status per actor, {large.actors} actors to {small.actors}"
    targets = [Target(name=name, measured=growth, bound=GROWTH, unit="times")]
    return HostsResult(load_at_start=load, hosts=hosts, targets=targets)


def _tell(found: HostsResult) -> None:
    head = ("ACTORS", "START ms", "STATUS ms", "LOOK AT LOGS ms", "STOP ms", "DESCRIPTORS")
    rows = [
        (
            one.actors, f"{one.start_ms:.1f}", f"{one.status_ms:.2f}", f"{one.look_ms:.2f}", f"{one.stop_ms:.1f}",
            one.descriptors,
        )
        for one in found.hosts
    ]  # fmt: skip
    output.table(head, rows)


def run(counts: list[int], *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    return show(measure(counts), _tell, as_json=as_json, note=f", {WAITS} waits an actor")
