"""A sampler on another machine: it serves what the main host's folders hold, and comes back when its host is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from actors.replay.messages import Sampling
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.messages import Generate, Generated, Pin, Weights
from policy.hf_folder import digest
from runtime.errors import ActorGone
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version
from runtime.system import ActorSpec, ActorSystem, HostSpec, PlacerSpec
from tests.actors.sampler.peers import Ledger
from tests.policy.engine_tools import VOCAB, reference_logprobs, write_model

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PLACER = ROOT / "tests" / "runtime"  # where the stand-in for Ray is
BASE, FIRST, SECOND = (Version(lineage=0, step=step) for step in range(3))
PROMPT = [(3 + 7 * i) % VOCAB for i in range(24)]


async def served(version: Version) -> None:
    async with asyncio.timeout(60):
        while await Ledger.told.get() != version:
            pass


@pytest.mark.proof
@pytest.mark.engine
async def test_a_sampler_elsewhere_loads_pins_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(PLACER))
    run = (tmp_path / "run").resolve()
    models = [write_model(folder, seed=i) for i, folder in enumerate((tmp_path / "base", run / "weights" / "0.1"))]
    models.append(write_model(run / "weights" / "0.2", seed=2))
    hosts = [HostSpec(name="samplers/0", place={"desktops": 4})]
    placer = PlacerSpec(module="local_placer")
    config = SamplerSettings(samplers=SamplersConfig(generate_timeout_s=60.0), model=str(models[0]))
    sampler = ActorSpec(name="sampler/0", factory="actors.sampler.actor:SamplerActor", config=config, host="samplers/0")

    async with ActorSystem(run, hosts=hosts, placer=placer) as system:
        ref = system.ref("sampler/0")

        async def check(rid: str, version: Version, pin: Version | None = None) -> None:
            asked = Generate(rid=rid, prompt_ids=PROMPT, sampling=Sampling(temperature=0.0, max_new_tokens=4), pin=pin)
            found = await ref.ask(asked, timeout_s=60)
            assert isinstance(found, Generated)
            assert {span.version for span in found.spans} == {version}
            expected = reference_logprobs(models[version.step], PROMPT, found.output_ids, 0.0)
            assert max(abs(a - b) for a, b in zip(found.logprobs, expected, strict=True)) < 1e-4

        await system.spawn(ActorSpec(name="replay", factory=Ledger), sampler)
        await served(BASE)
        await check("a", BASE)
        await ref.ask(Pin(version=FIRST, location=str(models[1])), timeout_s=30)
        newest = Weights(version=SECOND, digest=digest(models[2]), location=str(models[2]))
        await ref.tell(newest)
        await served(SECOND)
        await check("b", SECOND)
        await check("c", FIRST, pin=FIRST)

        (started,) = read_logs(run, event="host_started")
        os.kill(started["pid"], signal.SIGKILL)
        async with asyncio.timeout(60):
            while True:  # a learner tells its samplers again and again
                try:
                    await ref.tell(newest, timeout_s=5)
                except ActorGone:
                    continue
                break
        await served(BASE)
        await served(SECOND)
        await check("d", SECOND)
    assert not list(read_logs(run, event="weights_refused"))
