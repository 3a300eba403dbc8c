"""The replay actor among others: who waits, who is woken, what a restart keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.errors import FencedOff
from actors.replay.actor import ReplayActor
from actors.replay.demos import demo_files
from actors.replay.demos.format import FORMAT, RecordingHeader
from actors.replay.messages import (
    Batch,
    Checkpointed,
    CloseRun,
    Commit,
    Figures,
    GetFigures,
    NothingToTake,
    NoWork,
    Outcome,
    Phase,
    PhaseRef,
    Release,
    Reservation,
    Reserve,
    Serving,
    SetPhase,
    Take,
    Trained,
    WaitFigures,
)
from runtime.errors import ComputerRLError
from runtime.logs.reader import read_logs
from runtime.messaging.message import Request, Version
from runtime.system import ActorSpec, ActorSystem
from tests.actors.replay.ledger_tools import FAULT, settings, step
from tests.actors.replay.test_cold_start import demo

ZERO = Version(lineage=0, step=0)


class Run:
    """A system with the replay actor, and short ways to ask it."""

    def __init__(self, folder: Path, system: ActorSystem) -> None:
        self.folder = folder
        self.system = system
        self.wishes = 0

    async def ask(self, msg: Request[Any]) -> Any:
        return await self.system.ref("replay").ask(msg, timeout_s=20)

    async def start(self, **rules: Any) -> None:
        config = settings(incarnation="test", **rules)
        await self.system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=config))

    async def rl(self) -> None:
        demo, rl = PhaseRef(phase=Phase.DEMO, index=0), PhaseRef(phase=Phase.RL, index=1)
        await self.ask(SetPhase(expected=demo, next=rl, cause="counted", evidence={}))
        await self.ask(Serving(sampler="sampler/0", version=ZERO))

    async def reserve(self, seat: str, wait_s: float = 5.0) -> Reservation | NoWork:
        self.wishes += 1
        return await self.ask(Reserve(seat=seat, request_id=f"{seat}/{self.wishes}", wait_s=wait_s))

    async def take(self, wait_s: float = 5.0) -> Batch | NothingToTake:
        self.wishes += 1
        return await self.ask(Take(learner="learner", request_id=f"take/{self.wishes}", trained=ZERO, wait_s=wait_s))

    async def commit(self, work: Reservation, success: bool) -> None:
        outcome = Outcome(success=success, reason="verified")
        await self.ask(Commit(token=work.token, seat="s", outcome=outcome, steps=[step()], wall_s=1.0, busy_s=1.0))


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    async with ActorSystem(tmp_path) as system:
        yield Run(tmp_path, system)


async def test_seats_and_the_learner_wait_for_work(run: Run) -> None:
    await run.start()
    seats = [asyncio.ensure_future(run.reserve(f"desktop/{n}")) for n in range(2)]
    learner = asyncio.ensure_future(run.take())
    await asyncio.sleep(0.05)
    assert not any(seat.done() for seat in seats)
    await run.rl()
    works = await asyncio.gather(*seats)
    assert all(isinstance(work, Reservation) for work in works)
    assert not learner.done()
    for work in works:
        assert isinstance(work, Reservation)
        await run.commit(work, work.slot == 0)
    batch = await learner
    assert isinstance(batch, Batch)
    with pytest.raises(FencedOff):
        await run.ask(Release(token=works[0].token, seat="s", fault=FAULT))
    await run.ask(Trained(lease=batch.lease, version=Version(lineage=0, step=1), figures={"entropy": 0.5}))
    await run.ask(Checkpointed(version=Version(lineage=0, step=1), location="x", digest="d"))
    names = [line["event"] for line in read_logs(run.folder, actor="replay")]
    assert names[:2] == ["ledger_opened", "phase_changed"]
    assert names[-5:] == ["group_ready", "batch_taken", "step_trained", "rl_evidence", "group_ended"]
    committed = list(read_logs(run.folder, event="episode_committed"))
    assert [line["trace"] for line in committed] == ["g1.0", "g1.1"]


async def test_waits_end_in_time(run: Run) -> None:
    await run.start()
    began = time.monotonic()
    assert await run.reserve("desktop/0", wait_s=0.1) == NoWork(final=False)
    assert await run.take(wait_s=0.1) == NothingToTake(final=False)
    figures = await run.ask(WaitFigures(since=10**6, wait_s=0.1))
    assert isinstance(figures, Figures)
    assert time.monotonic() - began >= 0.3


async def test_closing_ends_all_waits(run: Run) -> None:
    await run.start()
    waits = [asyncio.ensure_future(run.reserve("desktop/0", 15)), asyncio.ensure_future(run.take(15))]
    await asyncio.sleep(0.05)
    await run.ask(CloseRun())
    assert await asyncio.gather(*waits) == [NoWork(final=True), NothingToTake(final=True)]


async def test_figures_wake_their_reader(run: Run) -> None:
    await run.start()
    figures = await run.ask(GetFigures())
    waiting = asyncio.ensure_future(run.ask(WaitFigures(since=figures.revision, wait_s=15)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await run.rl()
    later = await waiting
    assert later.revision > figures.revision
    assert later.phase.phase is Phase.RL


async def test_overdue_work_is_taken_back(run: Run) -> None:
    await run.start(lease_s=0.2)
    await run.rl()
    works = [await run.reserve(f"desktop/{n}") for n in range(4)]
    assert all(isinstance(work, Reservation) for work in works)
    again = await run.reserve("desktop/4")  # parked until the first is overdue
    assert isinstance(again, Reservation)
    figures = await run.ask(GetFigures())
    assert figures.faults["seat_silent"] >= 1


async def test_a_restart_of_the_actor_loses_nothing(run: Run) -> None:
    await run.start()
    await run.rl()
    first, second = await run.reserve("desktop/0"), await run.reserve("desktop/1")
    assert isinstance(first, Reservation)
    assert isinstance(second, Reservation)
    await run.commit(first, True)
    with pytest.raises(ComputerRLError):
        # No such number fits the database: a defect, which ends the actor.
        await run.ask(Release(token=2**63, seat="s", fault=FAULT))
    await run.commit(second, False)  # what the seat held before the restart is still its own
    assert isinstance(await run.take(), Batch)
    opened = [line for line in read_logs(run.folder, actor="replay") if line["event"] == "ledger_opened"]
    assert [line["fresh"] for line in opened] == [True, False]


async def test_demonstrations_come_from_a_file(run: Run) -> None:
    file = run.folder / "demos.parquet"
    header = RecordingHeader(format=FORMAT, tokenizer="", form="", demos=1)
    demo_files.write(file, header, [demo("d0", "gui")])
    config = settings(incarnation="test", demos=1)
    config = msgspec.structs.replace(config, demos=msgspec.structs.replace(config.demos, source=str(file)))
    await run.system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=config))
    assert (await run.ask(GetFigures())).demos == 1
    assert [line["demos"] for line in read_logs(run.folder, event="demos_taken_in")] == [1]
