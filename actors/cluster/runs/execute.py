"""One run from start to stop: what happens around its loop, and what a person sees of it meanwhile.

Invariant: actors start after the actors they depend on and stop in the opposite order. A run ends and names its reason:
done, a part that can't be kept alive, the time limit, or a request to stop.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from actors.cluster import output
from actors.cluster.config.schema import Deploy
from actors.cluster.output import plain
from actors.cluster.runs import refusals, trackers
from actors.cluster.runs.apply import LivePlan
from actors.cluster.runs.compose import Plan
from actors.cluster.runs.evaluation_rounds import Verdict
from actors.cluster.runs.run_folder import OUT_OF_TIME, RunRecord
from actors.cluster.runs.run_reader import EVALUATION, RunNow, RunReader
from actors.desktop.providers.sandbox.owners import namespace
from actors.replay.messages import CloseRun, Figures, GetFigures, Phase, PhaseRef, WaitFigures
from runtime.disk import refusal
from runtime.errors import ComputerRLError, ConfigError
from runtime.logs.events import declare
from runtime.logs.writer import ActorLog
from runtime.messaging.message import Request
from runtime.program import machine_s, stop_event
from runtime.system import ActorSystem

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
REFRESH_S = 1.0  # at least between two answers of the ledger
ASK_S = 30.0
WAITS_S = 15.0  # between two lines on what is waited for
LOOK_S = 10.0  # no event tells of a disk that has filled up
_MEAN_OF = 5  # steps, whose success is shown together
_CLEAR = "\r\x1b[K"  # the line of a terminal


def cells(now: RunNow, seats: int) -> list[tuple[str, str]]:
    """Label and value, in order, of a run with `seats`; what is not known yet is left out."""
    phase, done = now.phase, now.done
    count = f"{done}/{now.whole}" if now.whole is not None else str(done)
    counted = {Phase.DEMO: "demos", EVALUATION: "episodes"}.get(phase, "step")
    shown = [("phase", plain(phase) or "start"), (counted, count)]
    if now.left_s is not None:
        shown.append(("left", output.duration(now.left_s)))
    won = [step.success for step in now.curve if step.success is not None][-_MEAN_OF:] if phase == Phase.RL else []
    rounds = [one for one in now.rounds if one.played and (one.closed or phase == EVALUATION)]
    newest, trained = now.curve[-1].figures if now.curve else {}, sum(now.staleness.values())
    figures = {
        "success": sum(won) / len(won) if won else None,
        "held-out": rounds[-1].successes / (rounds[-1].planned if rounds[-1].closed else done) if rounds else None,
        "loss": newest.get("loss"),
        "entropy": newest.get("entropy"),
    }
    shown += [(label, f"{value:.2f}") for label, value in figures.items() if value is not None]
    busy = sum(bool(seat.trace) for seat in now.seats)
    shown += [("episodes/min", f"{now.episodes_per_min or 0:.0f}"), ("seats busy", f"{busy}/{seats}")]
    if trained:
        shown.append(("staleness", f"{sum(int(age) * n for age, n in now.staleness.items()) / trained:.2f}"))
    return shown


class RunDisplay:
    """Shows a run on standard output: a line every few seconds, or in a terminal one that takes the place of the last.

    A reader that leaves, or a terminal that is gone (EIO, after a SIGHUP), ends the showing and not the run.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self.every_s = 1.0 if self._terminal else 5.0

    def clear(self) -> None:
        """Let what is printed next begin a line."""
        if self._terminal:
            with suppress(OSError, output.Unwritten):
                output.write(_CLEAR, sys.stdout)

    def note(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        with suppress(OSError):
            output.news(text)

    def show(self, now: RunNow, seats: int, elapsed_s: float) -> None:
        """What the run does now, `elapsed_s` seconds after its start."""
        pairs = "  ".join(f"{label} {value}" for label, value in cells(now, seats))
        text = f"{output.duration(elapsed_s):>7}  {pairs}"
        if not self._terminal:
            output.news(text)
            return
        self.clear()
        with suppress(OSError, output.Unwritten):
            output.write(output.clean(text)[: output.columns() - 1], sys.stdout)


class Job(NamedTuple):
    """One kind of run. `plan` makes actors of what a deploy file means (keywords `run_dir`, `incarnation`), `program`
    is its loop, `judge` gives its verdict."""

    plan: Callable[..., Plan]
    program: Callable[[LiveRun], Coroutine[Any, Any, Figures]]
    judge: Callable[[Plan, Figures], Verdict]
    trains: bool = False

    def planned(self, deploy: Deploy, *, run_dir: Path, incarnation: str) -> Plan:
        """The plan of `deploy`. Raises ConfigError for tasks, models or numbers that don't fit together."""
        named = refusals.look_up(deploy, run_dir=run_dir, trains=self.trains)
        return self.plan(named, run_dir=run_dir, incarnation=incarnation)


class LiveRun:
    """The parts of a run and its newest figures, for the program that runs it."""

    def __init__(self, system: ActorSystem, plan: Plan, job: Job, shown: RunDisplay) -> None:
        self.plan = plan  # that it began with
        self.live = LivePlan(system, plan, job.planned)
        self.limit: asyncio.Timeout | None = None
        self._system, self._shown = system, shown
        self._figures: Figures | None = None
        self._changed = asyncio.Condition()

    async def start(self) -> Figures:
        """Start the parts, each stage after the one that it needs; returns the ledger's figures."""
        for stage in self.plan.stages[1:]:
            await self._system.spawn(*stage)
        assert self.limit is not None
        self.live.begin(self.limit)
        return await self.until(lambda _: True)

    async def until(self, over: Callable[[Figures], bool]) -> Figures:
        """The first figures that are `over`."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._figures is not None and over(self._figures))
        assert self._figures is not None
        return self._figures

    async def until_after(self, segment: PhaseRef) -> Figures:
        """The first figures of another phase segment."""
        return await self.until(lambda now: now.phase != segment)

    async def request(self, name: str, message: Request[Any], timeout_s: float = ASK_S) -> Any:
        """An actor's answer; one that restarts is asked again."""
        return await self._system.ref(name, "progress").ask_until(message, timeout_s=timeout_s, give_up_s=math.inf)

    def note(self, text: str) -> None:
        if text:
            self._shown.note(text)

    async def end(self) -> Figures:
        """Answer every parked request with `final`; returns the newest figures that were seen."""
        await _close(self._system)
        return await self.until(lambda _: True)

    async def follow(self) -> None:
        """Take the ledger's figures whenever they change. Raises what its supervisor gives up with."""
        revision = -1
        while True:
            figures = await self.request("replay", WaitFigures(since=revision, wait_s=5.0))
            revision = figures.revision
            async with self._changed:
                self._figures = figures
                self._changed.notify_all()
            await asyncio.sleep(REFRESH_S)

    async def show(self) -> None:
        """Show what the run does, until cancelled."""
        reader, started = RunReader(self.plan.run_dir), time.monotonic()
        try:
            while True:
                now = None
                with suppress(ComputerRLError, OSError):  # what can't be read for a moment is shown later
                    now = await asyncio.to_thread(reader.look)
                if now is not None:
                    seats = sum(name.startswith("desktop/") for name in self._system.names())  # `apply` changes it
                    self._shown.show(now, seats, time.monotonic() - started)
                await asyncio.sleep(self._shown.every_s)
        finally:
            self._shown.clear()
            reader.close()


async def execute(plan: Plan, record: RunRecord, job: Job) -> Verdict:
    """Run `plan` for `job`; returns the verdict and its reason."""
    with stop_event() as stop:
        system = ActorSystem(plan.run_dir, hosts=plan.hosts, log_level=plan.deploy.run.log_level, placer=plan.placer)
        try:
            async with system:
                return await _until_the_end(system, LiveRun(system, plan, job, RunDisplay()), job, stop)
        except ConfigError:
            raise
        except ComputerRLError as error:
            return "crashed", str(error)


async def _until_the_end(system: ActorSystem, run: LiveRun, job: Job, stop: asyncio.Event) -> Verdict:
    deploy, folder = run.plan.deploy, run.plan.run_dir

    async def show_waits() -> None:
        while True:
            await asyncio.sleep(WAITS_S)
            for line in system.waits():
                run.note(line)

    await system.spawn(*run.plan.stages[0])  # the ledger: all else asks it
    logged = log_cpu(system.log, system.cpu_placed), trackers.follow(folder, deploy.run.trackers, system.log)
    works = run.follow(), run.show(), *logged, watch_disk(folder, run.note), show_waits()
    around = [asyncio.ensure_future(work) for work in works]
    failed, stopped = asyncio.ensure_future(system.failed()), asyncio.ensure_future(stop.wait())
    program: asyncio.Future[Figures] | None = None
    try:
        async with asyncio.timeout(deploy.run.limit_s) as run.limit:
            program = asyncio.ensure_future(job.program(run))
            await asyncio.wait([program, failed, stopped, *around], return_when=asyncio.FIRST_COMPLETED)
        await run.live.close()  # no change outlives the limit that it may move
        for work in around:
            if work.done():
                work.result()
        if failed.done():
            return "crashed", failed.result()
        if program.done():
            return job.judge(run.live.plan, program.result())
        run.note("stopping ... (Ctrl-C again ends at once)")
        await _close(system)
        return "stopped", "interrupted"
    except TimeoutError:
        if run.limit is None or not run.limit.expired():
            raise
        await run.live.close()
        run.note(f"stopping: the limit of {run.live.plan.deploy.run.limit_s:g} s is over")
        await _close(system)
        figures = await system.ref("replay").ask(GetFigures(), timeout_s=ASK_S)
        verdict, missing = job.judge(run.live.plan, figures)
        return verdict, "; ".join([OUT_OF_TIME, *([missing] if missing else [])])
    finally:
        await run.live.close()
        watched: list[asyncio.Future[Any]] = [*around, failed, stopped, *([program] if program is not None else [])]
        for future in watched:
            future.cancel()
        await asyncio.gather(*watched, return_exceptions=True)


async def _close(system: ActorSystem) -> None:
    with suppress(ComputerRLError):  # a ledger that is gone has no parked requests left
        await system.ref("replay").ask(CloseRun(), timeout_s=5.0)


async def watch_disk(folder: Path, note: Callable[[str], None], look_s: float = LOOK_S) -> None:
    """Look every `look_s` seconds until cancelled."""
    since: float | None = None
    while True:
        if why := await asyncio.to_thread(refusal, folder):
            if since is None:
                since = time.monotonic()
                note(f"the disk of {folder} takes no more: {why}")
        elif since is not None:
            note(f"the disk of {folder} takes bytes again after {time.monotonic() - since:.0f} s: the run goes on")
            since = None
        await asyncio.sleep(look_s)


def part_of(words: Sequence[str]) -> str:
    """The part of a run that a child process with this command line is."""
    if any(word.endswith(_LAUNCHER) for word in words):
        return ENGINE
    return next((part for mark, part in _PARTS if any(word.startswith(mark) for word in words)), "other")


class CpuMeter:
    """Adds up the processor seconds of this process and its children, by part: each once, for what spent it.

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

    def read(self) -> dict[str, Any]:
        """Fields of `cpu_used`: what was used since the last look. Blocks for some milliseconds."""
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
        elsewhere, (since, machine_before) = self._read_placed(seconds), (self._at, self._machine_s)
        self._seen, self._at, self._machine_s = alive, time.monotonic(), machine_s()
        return {
            "span_s": self._at - since, "cores": psutil.cpu_count() or 1, "seconds": seconds,
            "machine_s": self._machine_s - machine_before, "elsewhere": elsewhere, "namespace": namespace(),
        }  # fmt: skip

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

    try:
        while True:
            await asyncio.sleep(period_s)
            log.emit(CPU_USED, **await asyncio.to_thread(meter.read))
    finally:
        log.emit(CPU_USED, **meter.read())
