"""A router on another machine: when that is lost, asks fail at once, and later ones wait for its next life."""

# ruff: noqa: ASYNC110 - nothing tells that a router has taken its settings

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from actors.cluster.config import deploy_files, models
from actors.cluster.runs import placement
from actors.desktop.answers import Prompt, SampledAnswers
from actors.errors import DesktopFault
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling
from actors.sampler.router import DispatchSettings
from apis.observation import Observation
from policy.tokenizer import Tokenizer
from runtime.logs.reader import read_logs
from runtime.system import ActorSpec, ActorSystem, PlacerSpec
from tests.actors.sampler.test_dispatch import NAMES, Sampler

PLACERS = Path(__file__).resolve().parents[2] / "runtime"  # of a placer that places hosts on this machine


def router(*samplers: str) -> ActorSpec:
    settings = DispatchSettings(samplers=list(samplers), generate_timeout_s=30.0)
    factory = "actors.sampler.router:DispatchActor"
    return ActorSpec(name="router", factory=factory, config=settings, host="router")


@pytest.mark.slow
async def test_a_lost_router_is_a_fault_and_comes_back_as_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLACERS))
    deploy = deploy_files.load("smoke", ["cluster.engine=ray", "samplers.router_place={desktops: 1}"])[0]
    hosts = placement.router_hosts(deploy)
    tokenizer = Tokenizer.load(str(models.locate("")))
    Sampler.does, Sampler.asked = {}, []
    Sampler.came, Sampler.held = asyncio.Event(), asyncio.Event()
    async with ActorSystem(tmp_path, hosts=hosts, placer=PlacerSpec(module="local_placer")) as system:

        async def answer(token: int, step: int) -> None:
            """As a seat asks."""
            work = Reservation(
                token=token, lane=Lane.TRAIN, task="t", group="1", slot=0, seed=7, max_turns=8, pin=None,
                sampling=Sampling(temperature=1.0, max_new_tokens=8), phase=PhaseRef(phase=Phase.RL, index=1),
            )  # fmt: skip
            seat = SampledAnswers([system.ref("router", "desktop/0")], tokenizer, work, "g", 35.0)
            await seat.answer(step, Prompt(user="x"), Observation(windows=(), elements=()), [], None)

        await system.spawn(*(ActorSpec(name=name, factory=Sampler) for name in NAMES), router(*NAMES))
        await answer(1, 0)
        (pid,) = [one.pid for one in await system.statuses() if one.name == "router"]
        Sampler.does = dict.fromkeys(NAMES, "hold")
        held = asyncio.ensure_future(answer(2, 0))
        await Sampler.came.wait()
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            with pytest.raises(
                DesktopFault, match=r"sampler_unavailable: router is gone: host router was lost"
            ) as lost:
                await held
        assert lost.value.culprit == "sampler", "no desktop and no task pays for it"
        Sampler.held.set()
        Sampler.does = {}
        await system.configure(router(NAMES[1]))  # while it is gone: its next life begins so
        Sampler.asked.clear()
        await answer(3, 0)
        assert Sampler.asked == NAMES[1:]

        Sampler.does, Sampler.came, Sampler.held = {NAMES[1]: "hold"}, asyncio.Event(), asyncio.Event()
        first = asyncio.ensure_future(answer(3, 1))
        await Sampler.came.wait()
        leaving = asyncio.ensure_future(system.configure(router(NAMES[0])))
        async with asyncio.timeout(30):
            while [one.doing for one in await system.statuses() if one.name == "router"] != [f"{NAMES[0]}: 0 tokens"]:
                await asyncio.sleep(0.02)
        await answer(3, 2)
        assert Sampler.asked[-1] == NAMES[0]
        assert not leaving.done(), "the one that leaves has an answer to give"
        Sampler.held.set()
        await first
        await leaving
    lives = [line["restarts"] for line in read_logs(tmp_path, event="host_started")]
    assert lives == [0, 1]
    assert not msgspec.to_builtins(list(read_logs(tmp_path, event="system_failed")))
