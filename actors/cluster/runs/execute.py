"""One run from start to stop.

Invariant: actors start after the actors they depend on and stop in the opposite order. A run ends and names its reason:
done, a part that can't be kept alive, the time limit, or a request to stop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster.runs import compose, criterion, evaluation_rounds, progress, tensorboard, trackers
from actors.cluster.runs import cpu as usage
from actors.cluster.runs.apply import Standing
from actors.cluster.runs.compose import Plan
from actors.cluster.runs.run_folder import OUT_OF_TIME, RunRecord
from actors.learner.messages import GetLearnerState
from actors.replay.messages import CloseRun, Figures, GetFigures, Phase, WaitFigures
from runtime.disk import refusal
from runtime.errors import ComputerRLError, ConfigError
from runtime.program import stop_event
from runtime.system import ActorSpec, ActorSystem

REFRESH_S = 1.0  # a display's rate; what it shows comes as it changes
ASK_S = 30.0
WAITS_S = 15.0  # between two lines on what is waited for


Verdict = tuple[str, str | None]  # "ok", "failed", "crashed" or "stopped", and the reason


class Job(NamedTuple):
    """What a run is for: `plan` says what is started for a deploy file (with `run_dir` and `incarnation` by name),
    `watch` shows figures until there is nothing left to do, `judge` says what came of it."""

    plan: Callable[..., Plan]
    watch: Callable[[ActorSystem, Plan, progress.Display], Awaitable[Figures]]
    judge: Callable[[Plan, Figures], Verdict]


def training() -> Job:
    """To go through all phases."""
    return Job(compose.plan, _watch, _judge)


def recording() -> Job:
    """To record demonstrations and learn nothing."""
    return Job(compose.recording, _watch_recording, _judge_recording)


async def execute(plan: Plan, record: RunRecord, job: Job) -> Verdict:
    """Run `plan` for `job`; returns the verdict and its reason."""
    with stop_event() as stop, progress.display(record.name) as shown:
        system = ActorSystem(plan.run_dir, hosts=plan.hosts, log_level=plan.deploy.run.log_level, placer=plan.placer)
        try:
            async with system:
                return await _until_the_end(system, plan, job, stop, shown)
        except ConfigError:
            raise
        except ComputerRLError as error:
            return "crashed", str(error)


async def _until_the_end(
    system: ActorSystem, plan: Plan, job: Job, stop: asyncio.Event, shown: progress.Display
) -> Verdict:
    limit_s = plan.deploy.run.limit_s
    standing = Standing(system, plan, job.plan)
    ledger, *later = plan.stages
    await system.spawn(*ledger)
    start = asyncio.ensure_future(_spawn(system, later))  # watched from its first moment, not when all is up
    watch = asyncio.ensure_future(job.watch(system, plan, shown))
    failed = asyncio.ensure_future(system.failed())
    stopped = asyncio.ensure_future(stop.wait())
    used = asyncio.ensure_future(usage.log_cpu(system.log, system.cpu_placed))
    drawn = asyncio.ensure_future(tensorboard.follow(plan.run_dir, system.log))
    sent = asyncio.ensure_future(trackers.follow(plan.run_dir, plan.deploy.run.trackers, system.log))
    room = asyncio.ensure_future(watch_disk(plan.run_dir, shown.note))
    waits = asyncio.ensure_future(_tell_waits(system, shown))
    watched: set[asyncio.Future[Any]] = {start, watch, failed, stopped, used, drawn, sent, room, waits}
    try:
        async with asyncio.timeout(limit_s) as limit:
            await asyncio.wait({start, failed, stopped, used, drawn, sent, room}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                standing.begin(limit)
                await asyncio.wait(
                    {watch, failed, stopped, used, drawn, sent, room}, return_when=asyncio.FIRST_COMPLETED
                )
        await standing.close()  # no change outlives the limit that it may move
        for aside in (used, drawn, sent, room):
            if aside.done():
                aside.result()
        if failed.done():
            return "crashed", failed.result()
        if watch.done():
            return job.judge(standing.plan, watch.result())
        return await _break_off(system, shown)
    except TimeoutError:
        if not limit.expired():
            raise
        await standing.close()
        return await _out_of_time(system, standing.plan, job, shown)
    finally:
        await standing.close()
        for future in watched:
            future.cancel()
        await asyncio.gather(*watched, return_exceptions=True)


async def _spawn(system: ActorSystem, stages: Sequence[Sequence[ActorSpec]]) -> None:
    for stage in stages:
        await system.spawn(*stage)


async def _tell_waits(system: ActorSystem, shown: progress.Display) -> None:
    """Say what hosts wait for, as long as they wait for machines."""
    while True:
        await asyncio.sleep(WAITS_S)
        for line in system.waits():
            shown.note(line)


async def _break_off(system: ActorSystem, shown: progress.Display) -> Verdict:
    shown.note("stopping ... (Ctrl-C again ends at once)")
    await close(system)
    return "stopped", "interrupted"


async def _out_of_time(system: ActorSystem, plan: Plan, job: Job, shown: progress.Display) -> Verdict:
    """What a run at its time limit has come to."""
    shown.note(f"stopping: the limit of {plan.deploy.run.limit_s:g} s is over")
    await close(system)
    verdict, missing = job.judge(plan, await system.ref("replay").ask(GetFigures(), timeout_s=ASK_S))
    return verdict, "; ".join([OUT_OF_TIME, *([missing] if missing else [])])


async def follow(
    system: ActorSystem,
    plan: Plan,
    shown: progress.Display,
    over: Callable[[Figures], bool],
    *,
    begin: Callable[[], Awaitable[None]] | None = None,
    learnt: Callable[[], Awaitable[tuple[float, float | None]]] | None = None,
    seen: Callable[[progress.Snapshot, Figures], progress.Snapshot] = lambda shot, _: shot,
) -> Figures:
    """Show figures until they are `over`; returns the last ones, with every parked request answered.

    What `begin` does may take minutes, as an engine's start: figures are shown meanwhile, and nothing is over before.
    `learnt` says for how many seconds the learner was busy, and its newest loss. What is shown is what `seen` makes
    of it.
    """
    started, revision = time.monotonic(), -1
    replay = system.ref("replay", "progress")
    meter = progress.Meter(plan.deploy.desktops.count)
    begun = None if begin is None else asyncio.ensure_future(begin())
    try:
        while True:
            request = WaitFigures(since=revision, wait_s=5.0)
            figures = await replay.ask_until(request, timeout_s=ASK_S, give_up_s=math.inf)  # its supervisor gives up
            busy_s, loss = await learnt() if learnt is not None else (None, None)
            revision = figures.revision
            meter.seats = sum(name.startswith("desktop/") for name in system.names())  # `apply` changes it
            shot = meter.read(time.monotonic(), started, figures, busy_s, plan.deploy.demos.count, loss=loss)
            shown.show(seen(shot, figures))
            if begun is not None and begun.done():
                begun = begun.result()
            if begun is None and over(figures):
                await close(system)
                return figures
            await asyncio.sleep(REFRESH_S)
    finally:
        if begun is not None:
            begun.cancel()


async def close(system: ActorSystem) -> None:
    """Answer every parked request with `final`."""
    with suppress(ComputerRLError):  # a ledger that is gone has no parked requests left
        await system.ref("replay").ask(CloseRun(), timeout_s=5.0)


async def _watch(system: ActorSystem, plan: Plan, shown: progress.Display) -> Figures:
    """Until the phases are done."""
    learner, busy_s = system.ref("learner", "progress"), 0.0
    loss: float | None = None

    async def learnt() -> tuple[float, float | None]:
        nonlocal busy_s, loss
        with suppress(ComputerRLError):  # the learner may be restarting; its last figures stand
            state = await learner.ask(GetLearnerState(), timeout_s=1.0)
            busy_s, loss = state.busy_s, state.loss
        return busy_s, loss

    return await follow(system, plan, shown, lambda figures: figures.phase.phase is Phase.DONE, learnt=learnt)


def _judge(plan: Plan, figures: Figures) -> Verdict:
    gains = evaluation_rounds.gains(evaluation_rounds.read_rounds(plan.run_dir))
    missing = criterion.unmet(plan.deploy.run.require, figures, gains)
    said = [criterion.told(gains[0])] if gains else []
    return "failed" if missing else "ok", "; ".join([*missing, *said]) or None


async def _watch_recording(system: ActorSystem, plan: Plan, shown: progress.Display) -> Figures:
    """Until enough are recorded or no attempt is left."""
    demos = plan.deploy.demos

    def over(figures: Figures) -> bool:
        if figures.demo_left is not None:  # with strata the ledger says so, as begun tasks get all their attempts
            return figures.demo_left == 0
        return figures.demos >= demos.count or figures.demo_attempts >= demos.attempts

    figures = await follow(system, plan, shown, over)
    shown.note(_counted(figures.demo_strata))
    if figures.demo_tasks:
        shown.note("tasks: " + _counted(figures.demo_tasks))
    return figures


def _judge_recording(plan: Plan, figures: Figures) -> Verdict:
    wanted, attempts = plan.deploy.demos.count, f"demonstrations in {figures.demo_attempts} attempts"
    if figures.demos >= wanted:
        return "ok", f"{figures.demos} {attempts}"
    return "failed", f"{figures.demos} of {wanted} {attempts}"


def _counted(strata: dict[str, int]) -> str:
    """`text_editor/gui 12, ...`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(strata.items()))


LOOK_S = 10.0  # no event tells of a disk that has filled up


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
