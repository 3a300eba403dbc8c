"""One run from start to stop.

Invariant: actors start after those they depend on and stop in the opposite order; a run ends because it is done, a
part of it can't be kept alive, its time is over or somebody asked for it, and says which.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from actors.cluster import criterion, progress
from actors.cluster.compose import Plan
from actors.cluster.runfolder import RunRecord
from actors.learner.messages import GetLearnerState
from actors.replay.messages import CloseRun, Figures, GetFigures, Phase, WaitFigures
from runtime.errors import ActorFailed, ComputerRLError
from runtime.signals import stop_event
from runtime.system import ActorSpec, ActorSystem

REFRESH_S = 1.0  # a display's rate; what it shows comes as it changes
ASK_S = 30.0


async def execute(plan: Plan, record: RunRecord) -> tuple[str, str | None]:
    """Run `plan`; returns the verdict and its reason."""
    with stop_event() as stop, progress.display(record.name) as shown:
        system = ActorSystem(plan.run_dir, hosts=plan.hosts, log_level=plan.deploy.run.log_level)
        try:
            async with system:
                return await _until_the_end(system, plan, stop, shown)
        except ActorFailed as error:
            return "crashed", str(error)


async def _until_the_end(
    system: ActorSystem, plan: Plan, stop: asyncio.Event, shown: progress.Display
) -> tuple[str, str | None]:
    run = asyncio.ensure_future(_start_and_watch(system, plan, shown))
    failed = asyncio.ensure_future(system.failed())
    stopped = asyncio.ensure_future(stop.wait())
    watched: set[asyncio.Future[Any]] = {run, failed, stopped}
    try:
        await asyncio.wait(watched, timeout=plan.deploy.run.limit_s, return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            return _judge(plan, run.result())
        if failed.done():
            return "crashed", failed.result()
        shown.note("stopping ... (Ctrl-C again ends at once)")
        reason = "interrupted" if stopped.done() else f"its time limit of {plan.deploy.run.limit_s:.0f} s is over"
        await _close(system)
        if stopped.done():
            return "stopped", reason
        figures = await system.ref("replay").ask(GetFigures(), timeout_s=ASK_S)
        verdict, missing = _judge(plan, figures)
        return verdict, f"{reason}{f'; {missing}' if missing else ''}"
    finally:
        for future in watched:
            future.cancel()
        await asyncio.gather(*watched, return_exceptions=True)


async def _start_and_watch(system: ActorSystem, plan: Plan, shown: progress.Display) -> Figures:
    """Show figures from the moment there is a ledger, while everything else starts."""
    started = time.monotonic()
    ledger, *later = plan.stages
    await system.spawn(*ledger)
    watch = asyncio.ensure_future(_watch(system, plan, shown, started))
    start = asyncio.ensure_future(_spawn(system, later))
    try:
        await asyncio.wait({watch, start}, return_when=asyncio.FIRST_EXCEPTION)
        for part in (start, watch):
            if part.done():
                part.result()
        return watch.result()
    finally:
        for part in (start, watch):
            part.cancel()
        await asyncio.gather(start, watch, return_exceptions=True)


async def _spawn(system: ActorSystem, stages: Sequence[Sequence[ActorSpec]]) -> None:
    for stage in stages:
        await system.spawn(*stage)


async def _watch(system: ActorSystem, plan: Plan, shown: progress.Display, started: float) -> Figures:
    """Show figures until the phase is done."""
    replay, learner = system.ref("replay", "progress"), system.ref("learner", "progress")
    meter = progress.Meter(plan.deploy.desktops.seats)
    revision, busy_s = -1, 0.0
    while True:
        figures = await replay.ask(WaitFigures(since=revision, wait_s=5.0), timeout_s=ASK_S)
        with suppress(ComputerRLError):  # the learner may be restarting; its last figure stands
            busy_s = (await learner.ask(GetLearnerState(), timeout_s=1.0)).busy_s
        revision = figures.revision
        shown.show(meter.read(time.monotonic(), started, figures, busy_s, plan.deploy.demos.count))
        if figures.phase.phase is Phase.DONE:
            await _close(system)
            return figures
        await asyncio.sleep(REFRESH_S)


async def _close(system: ActorSystem) -> None:
    """Answer every parked wish with `final`."""
    with suppress(ComputerRLError):  # a ledger that is gone has no parked wishes left
        await system.ref("replay").ask(CloseRun(), timeout_s=5.0)


def _judge(plan: Plan, figures: Figures) -> tuple[str, str | None]:
    missing = criterion.unmet(plan.deploy.run.require, figures)
    return ("failed", "; ".join(missing)) if missing else ("ok", None)
