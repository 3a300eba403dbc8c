"""A router in front of two samplers, of which one fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.errors import EngineGone, SamplerTimeout
from actors.replay.messages import Sampling, VersionSpan
from actors.sampler import router as routing
from actors.sampler.messages import Generate, Generated, Refused
from actors.sampler.router import DispatchActor, DispatchSettings
from policy.errors import EngineBusy
from runtime.actor import Actor, handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version
from runtime.system import ActorSpec, ActorSystem

NAMES = ["sampler/0", "sampler/1"]
HELD = Version(lineage=0, step=1)


class Sampler(Actor):
    """A stand-in: gone, busy, refusing or answering, as it is told."""

    does: dict[str, str] = {}
    asked: list[str] = []
    came: asyncio.Event
    held: asyncio.Event

    @handles(Generate, concurrent=True)
    async def generate(self, msg: Generate) -> Generated | Refused:
        """Do it."""
        Sampler.asked.append(self.ctx.name)
        match self.does.get(self.ctx.name, ""):
            case "gone":
                raise EngineGone("it was killed")
            case "busy":
                raise EngineBusy("it holds other weights")
            case "hold":
                Sampler.came.set()
                await Sampler.held.wait()
            case "refuse":
                return Refused(reason="too long")
        span = VersionSpan(version=HELD, start=0, end=1)
        return Generated(output_ids=[1], logprobs=[-1.0], spans=[span], finish="stop", cached_tokens=0)


async def ask(folder: Path, does: dict[str, str], count: int = 1, timeout_s: float = 20.0) -> list[str]:
    """Who was asked for `count` steps of one episode."""
    Sampler.does, Sampler.asked = does, []
    settings = DispatchSettings(samplers=NAMES, generate_timeout_s=timeout_s)
    async with ActorSystem(folder) as system:
        await system.spawn(*(ActorSpec(name=name, factory=Sampler) for name in NAMES))
        await system.spawn(ActorSpec(name="router", factory=DispatchActor, config=settings))
        for step in range(count):
            request = Generate(
                rid=f"e.{step}", prompt_ids=[1], sampling=Sampling(temperature=1.0, max_new_tokens=4), affinity="e"
            )
            reply = await system.ref("router").ask(request, timeout_s=30)
            assert isinstance(reply, Refused) == (does.get(Sampler.asked[-1]) == "refuse")
    return Sampler.asked


async def test_an_episode_stays_with_its_engine(tmp_path: Path) -> None:
    assert len(set(await ask(tmp_path, {}, count=4))) == 1


@pytest.mark.parametrize("fault", ["gone", "busy"])
async def test_a_failing_engine_costs_a_try_elsewhere(tmp_path: Path, fault: str) -> None:
    assert await ask(tmp_path, {"sampler/0": fault}, count=2) == ["sampler/0", "sampler/1", "sampler/1"]
    moved = [line["sampler"] for line in read_logs(tmp_path) if line["event"] == "request_moved"]
    assert moved == (["sampler/0"] if fault == "gone" else [])


async def test_the_tokens_that_each_sampler_drew_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_REPORT_S", 0.02)
    Sampler.does = {}
    async with ActorSystem(tmp_path) as system:
        await system.spawn(*(ActorSpec(name=name, factory=Sampler) for name in NAMES))
        await system.spawn(ActorSpec(name="router", factory=DispatchActor, config=DispatchSettings(samplers=NAMES)))
        request = Generate(rid="e.0", prompt_ids=[1], sampling=Sampling(temperature=1.0, max_new_tokens=4))
        for _ in range(3):
            await system.ref("router").ask(request, timeout_s=30)
        drawn = 0
        for _ in range(500):
            drawn = sum(sum(line["drawn"].values()) for line in read_logs(tmp_path) if line["event"] == "routed")
            if drawn == 3:
                break
            await asyncio.sleep(0.02)
    assert drawn == 3


async def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    assert await ask(tmp_path, {"sampler/0": "refuse", "sampler/1": "refuse"}) == ["sampler/0"]


@pytest.mark.parametrize("fault", ["gone", "busy"])
async def test_no_engine_at_all_ends_at_the_deadline(tmp_path: Path, fault: str) -> None:
    with pytest.raises(SamplerTimeout):
        await ask(tmp_path, dict.fromkeys(NAMES, fault), timeout_s=0.6)


async def test_a_sampler_that_leaves_has_answered_first_and_is_asked_no_more(tmp_path: Path) -> None:
    Sampler.does, Sampler.asked = {}, []
    Sampler.came, Sampler.held = asyncio.Event(), asyncio.Event()
    both = DispatchSettings(samplers=NAMES)

    def router(names: list[str]) -> ActorSpec:
        return ActorSpec(name="router", factory=DispatchActor, config=DispatchSettings(samplers=names))

    def step(rid: str) -> Generate:
        return Generate(rid=rid, prompt_ids=[1], sampling=Sampling(temperature=1.0, max_new_tokens=4), affinity="e")

    async with ActorSystem(tmp_path) as system:
        await system.spawn(*(ActorSpec(name=name, factory=Sampler) for name in NAMES), router(both.samplers))
        Sampler.does = {"sampler/0": "hold"}
        first = asyncio.ensure_future(system.ref("router").ask(step("e.0"), timeout_s=30))
        await Sampler.came.wait()
        leaving = asyncio.ensure_future(system.configure(router(NAMES[1:])))
        for _ in range(500):  # until the router has it
            if [one.doing for one in await system.statuses() if one.name == "router"] == ["sampler/1: 0 tokens"]:
                break
            await asyncio.sleep(0.02)
        await system.ref("router").ask(step("e.1"), timeout_s=30)  # its episode began at the one that leaves
        assert not leaving.done()
        Sampler.held.set()
        await first
        await leaving
        await system.remove(NAMES[:1])
        await system.ref("router").ask(step("e.2"), timeout_s=30)
    assert Sampler.asked == ["sampler/0", "sampler/1", "sampler/1"]
    assert not [line for line in read_logs(tmp_path) if line["event"] == "request_moved"]
