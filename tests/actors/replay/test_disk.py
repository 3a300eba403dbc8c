"""The ledger on a disk that is full and freed again, and on one that makes it wait."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from actors.replay.messages import Commit, Fault, Figures, GetFigures, NoWork, Outcome, Reservation, Reserve
from runtime import disk
from runtime.errors import DiskRefuses
from runtime.logs.reader import read_logs
from runtime.messaging.refs import Ref
from runtime.system import ActorSpec, ActorSystem
from tests.actors.replay.ledger_tools import Play, settings
from tests.heard import logged
from tests.small_disk import fill, needs_root, small_disk


async def begun(system: ActorSystem) -> Ref:
    """The actor of a ledger that wants demonstrations, as a seat asks it."""
    config = settings(incarnation="test", demos=8)
    await system.spawn(ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=config))
    return system.ref("replay", "desktop/0")


def solved(work: Reservation) -> Commit:
    outcome = Outcome(success=True, reason="verified")
    return Commit(token=work.token, seat="desktop/0", outcome=outcome, steps=[], wall_s=1.0, busy_s=1.0)


@needs_root
async def test_a_full_disk_is_named_and_the_run_goes_on_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "run") as run:
        async with ActorSystem(run) as system:
            replay = await begun(system)
            work = await replay.ask(Reserve(seat="desktop/0", request_id="r0"), timeout_s=20)
            assert isinstance(work, Reservation)
            done = solved(work)
            ballast = fill(run)
            for _ in range(2):
                with pytest.raises(DiskRefuses, match=r"disk is full \(make room there; the run goes on by itself"):
                    await replay.ask(done, timeout_s=20)
            wish = Reserve(seat="desktop/1", request_id="r1", wait_s=0.2)
            assert await replay.ask(wish, timeout_s=20) == NoWork(final=False), "nothing new is begun"
            figures: Figures = await replay.ask(GetFigures(), timeout_s=20)
            assert (figures.seats_busy, figures.episodes["demo"]) == (1, 0), "it still answers"
            ballast.unlink()
            await replay.ask(done, timeout_s=20)
            assert isinstance(await replay.ask(wish, timeout_s=20), Reservation)
            figures = await replay.ask(GetFigures(), timeout_s=20)
            assert (figures.episodes["demo"], figures.faults) == (1, {})
        (refused,) = read_logs(run, event="disk_refuses") or [None]
        (accepted,) = read_logs(run, event="disk_accepts")
        assert accepted["folder"] == str(run)
        assert refused is None or refused["folder"] == str(run)
        assert not list(read_logs(run, event="actor_failed"))


def test_what_the_disk_refused_uses_up_no_retry(tmp_path: Path) -> None:
    play = Play(tmp_path, retries=0).rl()
    full = Fault(cause="disk_refuses", detail="no room", culprit="disk")
    slots = set()
    for _ in range(5):
        work = play.reserve()
        slots.add((work.group, work.slot))
        play.release(work, full)
    assert len(slots) == 1
    assert play.figures().endings["lost"] == 0
    assert play.figures().faults == {"disk_refuses": 5}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The file is locked by another connection."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


async def test_a_slow_disk_is_named_and_loses_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(disk, "SLOW_AFTER_S", 0.3)
    async with ActorSystem(tmp_path, stall_after_s=0.5) as system:
        replay = await begun(system)
        works = [await replay.ask(Reserve(seat=f"desktop/{n}", request_id=f"r{n}"), timeout_s=20) for n in range(4)]
        assert all(isinstance(work, Reservation) for work in works)
        with held(tmp_path / "ledger.sqlite"):
            commits = [asyncio.ensure_future(replay.ask(solved(work), timeout_s=30)) for work in works]
            await logged(tmp_path, "disk_slow")
            await asyncio.sleep(0.6)
            assert not any(commit.done() for commit in commits), "nobody is told what is not durable"
        await asyncio.gather(*commits)
        figures = await replay.ask(GetFigures(), timeout_s=20)
        assert figures.episodes["demo"] == 4
    # A disk that is slow in truth may be named, too.
    slow = max(read_logs(tmp_path, event="disk_slow"), key=lambda line: line["waited_s"])
    assert (slow["file"], slow["actor"]) == ("ledger.sqlite", "replay")
    assert 0.3 <= slow["waited_s"] < 60
    assert max(line["took_s"] for line in read_logs(tmp_path, event="disk_answers")) >= 0.9
    stalls = [line for line in read_logs(tmp_path, event="stall") if line["whom"] == "replay"]
    assert {line["who"] for line in stalls} == {"desktop/0"}, "the stall watch says who waits for it, too"
    assert not list(read_logs(tmp_path, event="actor_failed"))
