"""Which weights an engine is to hold, and how they get there, with a simulated engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import EngineGone, SamplerError
from actors.sampler import messages
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.health import EngineHealth, EngineRecord, EngineState, Gate
from actors.sampler.loader import WeightsVerdict
from actors.sampler.messages import Canary, Weights
from actors.sampler.weights import SamplerWeights, WantedWeights
from policy.errors import EngineBusy, EngineError
from runtime.messaging.message import Version
from tests.actors.sampler.test_gate_and_loader import Server

URL = "http://127.0.0.1:1"
BASE, ONE, TWO = (Version(lineage=0, step=step) for step in range(3))


def folder(path: Path) -> str:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    return str(path)


@pytest.mark.parametrize("single", [True, False])
def test_what_was_pinned_first_comes_first_where_an_engine_holds_one_version(single: bool) -> None:
    wanted = WantedWeights(Weights(version=BASE, location="base"), single=single)
    for version, location in ((ONE, "one"), (BASE, "again"), (ONE, "moved")):
        wanted.pin(version, location)
    two = Weights(version=TWO, location="two", digest="d")
    wanted.announced = two
    assert wanted.target == (Weights(version=ONE, location="moved") if single else two)
    wanted.pin(TWO, "two")
    assert wanted.unpin(ONE)
    assert wanted.unpin(BASE)
    assert wanted.target == two, "with all that was announced of it"
    assert wanted.deferred(ONE) == single
    assert not wanted.deferred(TWO)
    assert wanted.unpin(Version(lineage=9, step=9)) == single, "an engine of one version defers what asks for it"
    assert not wanted.unpin(ONE)
    wanted.pin(ONE, "one")
    assert not wanted.deferred(ONE)
    wanted.refuse(ONE)
    assert (ONE in wanted.pinned, wanted.deferred(ONE)) == (False, False)


class Engine(Server):
    """A server and its life: scores of `held` are right unless `wrong` names it."""

    pid, exit_code, last_output, kind = 1, None, list[str](), "attach"

    def __init__(self) -> None:
        super().__init__({})
        self.client, self.wrong, self.fails, self.condemned = self, set[str](), list[Exception](), 0
        self.fails_later = list[Exception]()  # after the next load

    async def score(self, ids: list[int], timeout_s: float) -> list[float]:
        return [-9.0 if self.held in self.wrong else -1.0]

    async def update(self, location: str, version: str, timeout_s: float, **how: str | bool) -> None:
        if self.fails:
            raise self.fails.pop()
        await super().update(location, version, timeout_s, **how)
        self.fails, self.fails_later = self.fails_later, []

    async def condemn(self) -> None:
        self.condemned += 1

    async def lost(self) -> str:
        return "it ended"


class Life:
    """The weights of one simulated engine, which is up, and what they log."""

    def __init__(self, tmp_path: Path) -> None:
        self.logged, self.suspects, self.served = list[tuple[Any, dict[str, Any]]](), list[Exception](), list[Any]()
        log = SimpleNamespace(emit=lambda event, **fields: self.logged.append((event, fields)))
        self._tasks: set[asyncio.Task[Any]] = set()
        ctx: Any = SimpleNamespace(name="sampler/0", run_dir=tmp_path, log=log, spawn=self._spawn)
        settings = SamplerSettings(samplers=SamplersConfig(attach=[URL]), model=folder(tmp_path / "base"), attach=URL)
        self.engine = Engine()
        self.record = EngineRecord(self.engine, self.served.append)
        self.weights = SamplerWeights(settings, ctx, self.record, Gate(), self.suspects.append)

    def _spawn(self, coro: Any, name: str) -> None:
        self._tasks.add(asyncio.ensure_future(coro))

    def announce(self, version: Version, **options: Any) -> Weights:
        canary = Canary(ids=[1, 2], logprobs=[-1.0])
        self.weights.announce(weights := Weights(version=version, location=str(version), canary=canary, **options))
        return weights

    def events(self, event: Any) -> list[dict[str, Any]]:
        return [fields for each, fields in self.logged if each is event]

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - each turn of the loop is a step of the simulation
                await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def alive(tmp_path: Path) -> AsyncIterator[Life]:
    """An engine that has come up with the base weights and follows what is announced."""
    life = Life(tmp_path)
    life.record.came_up()
    await life.weights.check_started(await life.weights.starting_with())
    assert life.record.health.served == BASE
    life._spawn(life.weights.follow(), "follow")
    try:
        yield life
    finally:
        await life.close()


async def test_the_newest_are_loaded_and_older_ones_are_skipped(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        life.announce(ONE)
        life.announce(TWO)
        life.announce(ONE)
        await life.until(lambda: life.record.health.served == TWO)
        (loaded,) = life.events(messages.WEIGHTS_LOADED)
        assert (loaded["version"], loaded["skipped"], loaded["off_by"]) == ("0.2", 1, 0.0)
        assert life.weights.wanted.verified is not None
        assert life.weights.wanted.verified.version == TWO
        life.announce(Version(lineage=0, step=3))
        await life.until(lambda: len(life.events(messages.WEIGHTS_LOADED)) == 2)
        assert life.events(messages.WEIGHTS_LOADED)[1]["skipped"] == 0


async def test_an_engine_that_was_long_in_starting_takes_the_adapter_that_is_the_newest_then(tmp_path: Path) -> None:
    life = Life(tmp_path)
    settings = life.weights._settings = msgspec.structs.replace(life.weights._settings, adapter_rank=4)
    asked: list[Weights] = []

    async def load(_: Any, latest: Weights) -> WeightsVerdict:
        asked.append(latest)
        return WeightsVerdict(latest.version, None, sound=True)

    life.weights.loader.load = load  # type: ignore[method-assign]
    assert settings.sglang_adapters
    life.record.came_up()
    before = await life.weights.starting_with()
    newest = life.announce(TWO, adapter="adapters/0.2")
    await life.weights.check_started(before)
    assert asked == [newest], "that of its start may be gone"
    assert life.record.health.served == TWO
    await life.close()


async def test_an_engine_that_starts_again_pins_what_its_predecessor_had_pinned(tmp_path: Path) -> None:
    life, pinned = Life(tmp_path), list[str]()

    async def pin(version: str, location: str, timeout_s: float) -> None:
        pinned.append(f"{version} {location}")

    life.engine.pin = pin  # type: ignore[method-assign]
    life.weights._settings = msgspec.structs.replace(
        life.weights._settings, samplers=SamplersConfig(), attach=""
    )  # the embedded engine
    life.weights.wanted.pin(ONE, "one")
    life.record.came_up()
    await life.weights.check_started(await life.weights.starting_with())
    assert pinned == ["0.1 one"]
    await life.close()


async def test_what_was_refused_is_asked_for_again_by_the_next_comparison(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        life.engine.fails = [EngineError("no room")] * 2
        life.announce(ONE)
        await life.until(lambda: life.events(messages.WEIGHTS_REFUSED))
        assert (life.record.health.served, life.weights.behind) == (BASE, False)
        await life.weights._compare()
        await life.until(lambda: life.record.health.served == ONE)


async def test_an_engine_whose_weights_stay_wrong_is_given_up(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        life.engine.wrong = {"0.1"}
        life.announce(ONE)
        await life.until(lambda: life.engine.condemned)
        assert [line["when"] for line in life.events(messages.WEIGHTS_SUSPECT)] == ["load", "second load"]
        assert life.record.health.state is EngineState.STALE
        assert life.served[-1] is None, "it serves nothing"
        await life.record.condemn("a second reason")
        off_by = "its weights are off by 8 on average, 8 at the 99th percentile, 8 at most; it ended"
        assert [await life.record.lost() for _ in range(2)] == [off_by, "it ended"]


async def test_an_answer_drawn_across_a_wrong_load_is_discarded(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        before = life.record.doubts
        await life.weights.verify_answer(["0.0"], before)
        assert life.record.answered == 1
        with pytest.raises(EngineBusy):
            await life.weights.verify_answer(["0.0", "0.1"], before)
        life.engine.wrong = {"0.0"}
        await life.until(lambda: not life.record.probing)
        life.announce(BASE)  # the learner now says how it scores
        await life.until(lambda: life.record.doubts > before)
        with pytest.raises(EngineBusy):
            await life.weights.verify_answer(["0.0"], before)
        assert life.record.answered == 1


async def test_a_load_that_breaks_is_tried_again_and_one_that_is_refused_leaves_the_old_weights(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        life.engine.fails = [EngineGone("silent")]
        life.announce(ONE)
        await life.until(lambda: life.suspects)
        assert life.record.broken_loads == 1
        life.weights.retry()
        await life.until(lambda: life.record.health.served == ONE)
        assert life.record.broken_loads == 0
        life.engine.fails = [EngineError("shape")] * 2
        life.announce(TWO)
        await life.until(lambda: life.events(messages.WEIGHTS_REFUSED))
        assert (life.record.health.served, life.weights.behind) == (ONE, False)
        life.announce(TWO)  # what was wrong may have passed
        await life.until(lambda: life.record.health.served == TWO)


async def test_an_engine_that_serves_nothing_and_can_not_be_loaded_is_given_up(tmp_path: Path) -> None:
    """Unsound after its first load, refused at the second: nothing would ever ask it again."""
    async with alive(tmp_path) as life:
        life.engine.wrong, life.engine.fails_later = {"0.1"}, [EngineError("the folder is gone")] * 2
        life.announce(ONE)
        await life.until(lambda: life.engine.condemned)
        assert "it serves nothing, and 0.1 can't be loaded: the folder is gone" in await life.record.lost()


async def test_pinned_weights_come_first_and_go_when_they_can_not_be_loaded(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        await life.weights.pin(ONE, "one")
        await life.until(lambda: life.record.health.served == ONE)
        life.announce(TWO)
        for _ in range(20):
            await asyncio.sleep(0)
        assert life.record.health.served == ONE
        await life.weights.unpin(ONE)
        await life.until(lambda: life.record.health.served == TWO)
        assert life.weights.wanted.deferred(ONE)
        life.engine.fails = [EngineError("gone")] * 2
        await life.weights.pin(BASE, "base")
        await life.until(lambda: BASE not in life.weights.wanted.pinned)
        assert not life.weights.wanted.deferred(BASE)
        assert life.record.health.served == TWO


async def test_who_waits_for_a_version_is_woken_when_it_is_let_go(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        waiting = asyncio.ensure_future(life.record.change())
        await asyncio.sleep(0)
        await life.weights.unpin(Version(lineage=9, step=9))
        await asyncio.wait_for(waiting, 60)


async def test_a_start_with_torn_weights_takes_the_verified_ones(tmp_path: Path) -> None:
    async with alive(tmp_path) as life:
        life.announce(ONE)
        await life.until(lambda: life.record.health.served == ONE)
        torn = Weights(version=TWO, location=folder(tmp_path / "torn"), digest="another")
        life.weights.announce(torn)
        await life.until(lambda: life.events(messages.WEIGHTS_REFUSED))
        life.record.becomes(life.record.health.lost())
        assert (await life.weights.starting_with()).version == BASE, "the folder of the verified ones is gone"
        assert not life.weights.behind
        life.weights.wanted.verified = Weights(version=ONE, location=folder(tmp_path / "one"))
        assert (await life.weights.starting_with()).version == ONE
        life.engine.wrong = {"1.0"}
        life.record.came_up()
        with pytest.raises(SamplerError, match="wrong weights"):
            await life.weights.check_started(life.announce(Version(lineage=1, step=0)))


async def test_a_new_life_is_trusted_with_nothing_and_each_change_wakes_who_waits(tmp_path: Path) -> None:
    record = Life(tmp_path).record
    record.came_up()
    record.holds(ONE)
    assert record.strange(["0.1", "0.2"]) == ["0.2"]
    record.becomes(record.health.read_back(TWO, TWO))
    assert record.strange(["0.1", "0.2"]) == [], "an answer may begin with the weights before"
    record.distrust(ONE)
    assert record.strange(["0.1", "0.2"]) == ["0.1"]
    waiting = asyncio.ensure_future(record.change())
    await asyncio.sleep(0)
    record.becomes(record.health.lost())
    await asyncio.wait_for(waiting, 60)
    record.came_up()
    assert record.strange(["0.1"]) == ["0.1"]
    waiting = asyncio.ensure_future(record.change())
    await asyncio.sleep(0)
    record.wake()
    await asyncio.wait_for(waiting, 60)


# -- the record of an engine alone: no request reaches one whose weights were not read back after it came up

VERSIONS = st.sampled_from([BASE, ONE, TWO])
READ_BACK = st.tuples(st.none() | VERSIONS, VERSIONS, st.booleans())
HEALTHY = EngineHealth().answered().read_back(BASE, BASE)


@given(st.lists(st.sampled_from(["answered", "lost", "succeeded"]) | READ_BACK, max_size=40))
def test_healthy_only_after_a_read_back_and_only_an_answered_request_ends_a_streak(events):
    health, read_back, up, streak = EngineHealth(), None, False, 0
    for event in events:
        before = health
        if isinstance(event, tuple):
            version, asked, sound = event
            health = health.read_back(version, asked, sound=sound)
            read_back = version if up and sound else None
        else:
            health = getattr(health, event)()
            up = event == "answered" or (up and event != "lost")
            read_back = None if event == "lost" else read_back
            streak = streak + 1 if event == "lost" else streak
            streak = 0 if event == "succeeded" and before.state is EngineState.HEALTHY else streak
        assert (before.state, health.state) != (EngineState.DEAD, EngineState.HEALTHY)
        assert (health.served is not None) == (health.state is EngineState.HEALTHY)
        if health.state is EngineState.HEALTHY:
            assert health.served == read_back
        assert health.streak == streak


def test_what_was_asked_for_is_served_and_nothing_else_in_its_place():
    assert (HEALTHY.state, HEALTHY.served) == (EngineState.HEALTHY, BASE)
    assert HEALTHY.read_back(BASE, ONE) == HEALTHY, "newer weights on their way stop no requests"
    assert HEALTHY.read_back(ONE, ONE).served == ONE
    for version in (TWO, None):
        assert (health := HEALTHY.read_back(version, ONE)).state is EngineState.STALE
        assert health.served is None
    stale = HEALTHY.read_back(ONE, ONE, sound=False)
    assert (stale.state, stale.served) == (EngineState.STALE, None)
    assert stale.answered().succeeded() == stale.read_back(BASE, ONE) == stale
    assert stale.read_back(ONE, ONE).served == ONE


def test_losses_are_counted_once():
    assert HEALTHY.lost().losses == HEALTHY.lost().lost().losses == 1
