"""Which part of a run uses the processor: entry point, desktop processes, rank, engine with its servers' processes.

Invariant: every second is counted once and for the process that spent it. A process that ended between two looks loses
at most the seconds since the last look.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
import psutil

from actors.cluster.events import CPU_USED
from runtime.logs.writer import ActorLog
from runtime.processor import machine_s

PERIOD_S = 10.0
ENTRY = "entry point"
ENGINE = "engine"
_PARTS = (("--name=desktops/", "desktop hosts"), ("--name=ranks/", "rank"), ("policy.engine", ENGINE))
_LAUNCHER = "/sglang_launch.py"  # of a server, whose work its own children do


class Used(msgspec.Struct, frozen=True):
    """Processor seconds within a span: by part, and of the whole machine."""

    span_s: float
    cores: int
    seconds: dict[str, float]
    machine_s: float


def part_of(words: Sequence[str]) -> str:
    """The part of a run that a child process with this command line is."""
    if any(word.endswith(_LAUNCHER) for word in words):
        return ENGINE
    return next((part for mark, part in _PARTS if any(word.startswith(mark) for word in words)), "other")


class CpuMeter:
    """Adds up the processor seconds of this process and its children, by part."""

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._seen: dict[psutil.Process, tuple[str, float]] = {}  # pruned to the living at every look
        self._at = time.monotonic()
        self._machine_s = machine_s()
        self.read()

    def read(self) -> Used:
        """What was used since the last look. Blocks for some milliseconds."""
        seconds: dict[str, float] = {}
        alive: dict[psutil.Process, tuple[str, float]] = {}
        waiting = [(self._me, ENTRY), *((child, "") for child in self._me.children())]
        while waiting:
            process, part = waiting.pop()
            try:
                used = sum(process.cpu_times()[:2])
                known = self._seen.get(process)
                part = known[0] if known else part or part_of(process.cmdline())
                if part == ENGINE:
                    waiting += [(child, ENGINE) for child in process.children()]
            except psutil.Error:  # it has just ended
                continue
            alive[process] = (part, used)
            seconds[part] = seconds.get(part, 0.0) + used - (known[1] if known else 0.0)
        now, machine = time.monotonic(), machine_s()
        used_here = Used(now - self._at, psutil.cpu_count() or 1, seconds, machine - self._machine_s)
        self._seen, self._at, self._machine_s = alive, now, machine
        return used_here


async def log_cpu(log: ActorLog, period_s: float = PERIOD_S) -> None:
    """Write a `cpu_used` line every `period_s` seconds, and the last one when cancelled."""
    meter = CpuMeter()
    try:
        while True:
            await asyncio.sleep(period_s)
            _write(log, await asyncio.to_thread(meter.read))
    finally:
        _write(log, meter.read())


def _write(log: ActorLog, used: Used) -> None:
    log.emit(CPU_USED, span_s=used.span_s, cores=used.cores, seconds=used.seconds, machine_s=used.machine_s)
