"""Which part of a run uses the processor: entry point, desktop processes, rank, engine with its servers' processes.

Every second is counted once and for the process that spent it. A process that ended between two looks loses at most the
seconds since the last look; one on another machine, since its last heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import psutil

from actors.desktop.providers.sandbox.owners import namespace
from runtime.logs.events import declare
from runtime.logs.writer import ActorLog
from runtime.program import machine_s

# Processor seconds of the last `span_s`: by part of the run (guests apart: `desktop_gone`), and of the whole machine.
# `elsewhere` has those of parts on other machines. `namespace` is the entry point's, as in names of desktops.
CPU_USED = declare(
    "cpu_used", "info",
    span_s=float, cores=int, seconds=dict[str, float], machine_s=float, elsewhere=dict[str, float], namespace=str,
)  # fmt: skip
Placed = Callable[[], Mapping[str, tuple[float, bool]]]
PERIOD_S = 10.0
ENTRY = "entry point"
ENGINE = "engine"
DESKTOPS = "desktop hosts"
_PARTS = (
    ("--name=desktops/", DESKTOPS), ("--name=ranks/", "rank"), ("--name=samplers/", ENGINE), ("policy.engine", ENGINE),
    ("--name=router", "router"), ("--name=learner", "learner"),
)  # fmt: skip
_LAUNCHER = "/sglang_launch.py"  # of a server, whose work its own children do


class Used(msgspec.Struct, frozen=True):
    """Fields of `cpu_used`."""

    span_s: float
    cores: int
    seconds: dict[str, float]
    machine_s: float
    elsewhere: dict[str, float] = {}


def part_of(words: Sequence[str]) -> str:
    """The part of a run that a child process with this command line is."""
    if any(word.endswith(_LAUNCHER) for word in words):
        return ENGINE
    return next((part for mark, part in _PARTS if any(word.startswith(mark) for word in words)), "other")


class CpuMeter:
    """Adds up the processor seconds of this process and its children, by part.

    `placed` says for how many seconds each placed process has computed so far, and whether on another machine.
    """

    def __init__(self, placed: Placed = dict) -> None:
        self._placed = placed
        self._known: dict[str, float] = {}  # of placed processes, as of the last look
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
        cores, elsewhere = psutil.cpu_count() or 1, self._read_placed(seconds)
        used_here = Used(now - self._at, cores, seconds, machine - self._machine_s, elsewhere)
        self._seen, self._at, self._machine_s = alive, now, machine
        return used_here

    def _read_placed(self, here: dict[str, float]) -> dict[str, float]:
        """Those on other machines; what was placed on this one is added to `here`."""
        far: dict[str, float] = {}
        placed = self._placed()
        for host, (used, elsewhere) in placed.items():
            part, before, where = part_of([f"--name={host}"]), self._known.get(host, 0.0), far if elsewhere else here
            # A process whose name was free again has begun to count again.
            where[part] = where.get(part, 0.0) + (used - before if used >= before else used)
        self._known = {host: used for host, (used, _) in placed.items()}
        return far


async def log_cpu(log: ActorLog, placed: Placed = dict, period_s: float = PERIOD_S) -> None:
    """Write a `cpu_used` line every `period_s` seconds, and the last one when cancelled; `placed` as `CpuMeter`."""
    meter = CpuMeter(placed)

    def write(used: Used) -> None:
        log.emit(CPU_USED, **msgspec.structs.asdict(used), namespace=namespace())

    try:
        while True:
            await asyncio.sleep(period_s)
            write(await asyncio.to_thread(meter.read))
    finally:
        write(meter.read())
