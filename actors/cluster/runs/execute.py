"""One run from start to stop: what happens around its loop, and what a person sees of it meanwhile.

Invariant: actors start after the actors they depend on and stop in the opposite order. A run ends and names its reason:
done, a part that can't be kept alive, the time limit, or a request to stop.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster import output
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import cpu, refusals, trackers
from actors.cluster.runs.apply import LivePlan
from actors.cluster.runs.compose import Plan
from actors.cluster.runs.criterion import Verdict
from actors.cluster.runs.run_folder import OUT_OF_TIME, RunRecord
from actors.cluster.runs.run_reader import RunNow, RunReader
from actors.replay.messages import CloseRun, Figures, GetFigures, Phase, PhaseRef, WaitFigures
from runtime.disk import refusal
from runtime.errors import ComputerRLError, ConfigError
from runtime.messaging.message import Request
from runtime.program import stop_event
from runtime.system import ActorSystem

REFRESH_S = 1.0  # at least between two answers of the ledger
ASK_S = 30.0
WAITS_S = 15.0  # between two lines on what is waited for
LOOK_S = 10.0  # no event tells of a disk that has filled up
_MEAN_OF = 5  # steps, whose success is shown together
_CLEAR = "\r\x1b[K"  # the line of a terminal


def cells(now: RunNow, seats: int) -> list[tuple[str, str]]:
    """Label and value, in order, of a run with `seats`; what is not known yet is left out."""
    going = now.rounds[-1] if now.rounds and not now.phase else None  # the one round of a run that only plays it
    phase, done, whole = (going.name, going.played, going.planned) if going else (now.phase, now.done, now.whole)
    count = f"{done}/{whole}" if whole is not None else str(done)
    shown = [("phase", phase or "start"), ("demos" if phase == Phase.DEMO else "step", count)]
    if now.left_s is not None:
        shown.append(("left", output.duration(now.left_s)))
    won = [step.success for step in now.curve if step.success is not None][-_MEAN_OF:] if phase == Phase.RL else []
    rounds = [one for one in now.rounds if one.played and (one.closed or one is going)]
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
    """One kind of run. `plan` makes a deploy file's actors (keywords `run_dir`, `incarnation`), `program` is its loop,
    `judge` gives its verdict."""

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
    around = [
        asyncio.ensure_future(work)
        for work in (
            run.follow(),
            run.show(),
            cpu.log_cpu(system.log, system.cpu_placed),
            trackers.follow(folder, deploy.run.trackers, system.log),
            watch_disk(folder, run.note),
            show_waits(),
        )
    ]
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
    """Answer every parked request with `final`."""
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
