"""An actor's lives leave nothing behind: tasks end, shared objects close once, stops are bounded."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from runtime.actor import Actor, handles
from runtime.errors import ActorFailed, ConfigError, StoreError
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Message, Request
from runtime.segments import SegmentStore, read_blob
from runtime.system import ActorSpec, ActorSystem, RestartPolicy, run
from tests.runtime.example_actors import Counter, Total


class Pool:
    """Counts how often it was made and closed."""

    made = closed = 0

    @classmethod
    async def make(cls) -> Pool:
        await asyncio.sleep(0.01)
        cls.made += 1
        return cls()

    async def close(self) -> None:
        Pool.closed += 1


class Defect(Request[Done]):
    pass


class Ticked(Message):
    pass


class Seat(Actor):
    """Shares a pool, runs a task, fails on demand, and logs its ends in `ended`."""

    ended: list[str] = []
    stubborn: asyncio.Event | None = None  # the task ends no sooner than this
    bad_stop = False

    async def on_start(self) -> None:
        self.pool = await self.ctx.shared("pool", Pool.make)
        self.ctx.spawn(self._forever(), "forever")

    async def _forever(self) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            if self.stubborn is not None:
                await self.stubborn.wait()
            self.ended.append(f"task {self.ctx.name}")

    async def on_stop(self) -> None:
        self.ended.append(f"stop {self.ctx.name}")
        if self.bad_stop:
            raise RuntimeError("bad stop")

    def doing(self) -> str:
        raise RuntimeError("no idea")

    @handles(Defect)
    async def defect(self, msg: Defect) -> Done:
        raise KeyError("defect")


@pytest.fixture(autouse=True)
def fresh():
    Pool.made = Pool.closed = 0
    Seat.ended, Seat.stubborn, Seat.bad_stop = [], None, False


def seats(count: int, **changes) -> list[ActorSpec]:
    quick = RestartPolicy(first_delay_s=0.01)
    return [ActorSpec(name=f"seat/{n}", factory=Seat, restart=quick, **changes) for n in range(count)]


async def test_shared_objects_are_made_and_closed_once(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(5))
        with pytest.raises(ActorFailed):
            await system.ref("seat/0").ask(Defect(), timeout_s=5)
        assert (Pool.made, Pool.closed) == (1, 0)
    assert (Pool.made, Pool.closed) == (1, 1)


async def test_every_life_ends_its_tasks_before_on_stop(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(1))
        assert "doing() failed" in (await system.statuses())[0].doing
        for _ in range(2):
            with pytest.raises(ActorFailed):
                await system.ref("seat/0").ask(Defect(), timeout_s=5)
    assert Seat.ended in (["task seat/0", "stop seat/0"] * lives for lives in (2, 3))
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_what_does_not_stop_in_time_is_named(tmp_path):
    Seat.stubborn, Seat.bad_stop = asyncio.Event(), True
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*seats(1, stop_timeout_s=0.05))
    (outlives,) = read_logs(tmp_path, event="task_outlives")
    assert outlives["tasks"] == ["seat/0:forever"]
    (bad,) = read_logs(tmp_path, event="stop_failed")
    assert bad["error"] == "RuntimeError: bad stop"
    Seat.stubborn.set()
    async with asyncio.timeout(30):
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert Seat.ended == ["stop seat/0", "task seat/0"]


async def test_spawning_needs_a_running_system(tmp_path):
    system = ActorSystem(tmp_path)
    with pytest.raises(ConfigError, match="not running"):
        await system.spawn(*seats(1))
    await system.start()
    await system.stop()
    await system.stop()


async def test_a_factory_that_is_not_there(tmp_path):
    async with ActorSystem(tmp_path) as system:
        with pytest.raises(ActorFailed, match="can't load nowhere:Actor"):
            await system.spawn(ActorSpec(name="a", factory="nowhere:Actor"))


@pytest.mark.slow
def test_it_runs_on_uvloop_and_leaves_no_descriptors(tmp_path):
    async def once(folder: Path) -> str:
        async with ActorSystem(folder) as system:
            await system.spawn(ActorSpec(name="a", factory=Counter), ActorSpec(name="b", factory=Counter, host="one"))
            await system.ref("b").ask(Total(), timeout_s=5)
        return type(asyncio.get_running_loop()).__module__

    assert run(once(tmp_path / "0")).startswith("uvloop")
    before = sorted(os.listdir("/proc/self/fd"))
    run(once(tmp_path / "1"))
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_full_disk_refuses_the_payload_and_keeps_the_rest(tmp_path, monkeypatch):
    store = SegmentStore(tmp_path, "w")
    before = store.append(b"before")
    real, budget = os.pwrite, [30]

    def short(fd, data, offset):
        if budget[0] <= 0:
            raise OSError(28, "No space left on device")
        budget[0] -= 30
        return real(fd, data[:30], offset)

    monkeypatch.setattr("runtime.segments.os.pwrite", short)
    with pytest.raises(StoreError, match="No space left"):
        store.append(b"x" * 100)
    monkeypatch.setattr("runtime.segments.os.pwrite", real)
    after = store.append(b"after")
    store.close()
    SegmentStore(tmp_path, "w").close()
    assert [read_blob(tmp_path, ref) for ref in (before, after)] == [b"before", b"after"]
