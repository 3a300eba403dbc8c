"""A learner whose rank broadcasts every version to two real SGLang servers in one group."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.learner.config import GroupSettings
from actors.learner.messages import WriteWeights
from actors.replay.messages import Phase, Sampling
from actors.sampler.config import SamplersConfig, SamplerSettings, WeightSyncConfig
from actors.sampler.messages import Generate, Generated, Weights
from runtime.messaging.message import Version
from runtime.program import TOKEN_ENV
from runtime.supervision import RestartPolicy
from runtime.system import ActorSpec
from tests.actors.learner.test_learner_actor import FAST, Run, running
from tests.policy.engine_tools import VOCAB, Server, reference_logprobs
from tests.sglang.conftest import missing_sglang, sglang_server

pytestmark = pytest.mark.real_sglang
PATIENT = RestartPolicy(first_delay_s=0.5, max_restarts=1000)
PROMPT = [(3 + 7 * i) % VOCAB for i in range(24)]
WAIT_S = 240.0
Pair = list[Server]


@pytest.fixture(scope="module")
def pair(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two real servers for all tests of this file."""
    assert not missing_sglang()
    with sglang_server(models[0], tmp_path_factory.mktemp("one")) as one:
        with sglang_server(models[0], tmp_path_factory.mktemp("two")) as two:
            yield [one, two]


@asynccontextmanager
async def training(
    folder: Path, base: Path, servers: Pair, groups: GroupSettings, every: int = 1000, **more: Any
) -> AsyncIterator[Run]:
    """Ledger, learner, rank, and a sampler in front of each server; a checkpoint `every` so many steps."""
    samplers = SamplersConfig(attach=[one.url for one in servers], api_key_env=TOKEN_ENV)
    sync = WeightSyncConfig(transport="collective", join_s=groups.join_s, **more)
    specs = []
    for number, server in enumerate(servers):
        config = SamplerSettings(
            samplers=samplers, weight_sync=sync, model=str(base), attach=server.url, hung_after_s=60.0, restart=PATIENT
        )
        factory = "actors.sampler.actor:SamplerActor"
        specs.append(ActorSpec(name=f"sampler/{number}", factory=factory, config=config, restart=FAST))
    async with running(folder, base, groups, apart=True, samplers=specs, checkpoint_every=every) as run:
        yield run


async def check(run: Run, sampler: str, version: Version) -> None:
    """It draws what the weights make of the prompt, which are on disk once they were asked for."""
    weights: Weights = await run.system.ref("learner").ask(WriteWeights(version=version), timeout_s=WAIT_S)
    wish = Generate(rid=f"{version}", prompt_ids=PROMPT, sampling=Sampling(temperature=1.0, max_new_tokens=6))
    found: Generated = await run.system.ref(sampler).ask(wish, timeout_s=WAIT_S)
    assert {span.version for span in found.spans} == {version}
    expected = reference_logprobs(Path(weights.location), PROMPT, found.output_ids, 1.0)
    assert found.logprobs == pytest.approx(expected, abs=1e-4)


async def two_versions(run: Run) -> Version:
    """The second of two versions, by cloning and by RL, which every server serves and no folder holds."""
    await run.seats.play(2, None)
    await run.enter(Phase.BC, steps=1)
    first, second = Version(lineage=0, step=1), Version(lineage=0, step=2)
    await run.until(lambda figures: figures.served == first)
    await run.enter(Phase.RL)
    await run.seats.play(2, first)
    await run.until(lambda figures: figures.served == second)
    assert not (run.folder / "weights" / str(second)).exists(), "written before anybody needs it on disk"
    return second


def loads(run: Run, sampler: str) -> list[tuple[str, str]]:
    return [(line["version"], line["way"]) for line in run.logged("weights_loaded", sampler)]


@pytest.mark.parametrize("update", ["drain", "in_place"])
async def test_two_servers_take_every_version_from_one_group(
    tmp_path: Path, models: list[Path], pair: Pair, update: str
) -> None:
    groups = GroupSettings(join_s=60.0)
    async with training(tmp_path / "run", models[0], pair, groups, in_flight=update) as run:
        second = await two_versions(run)
        for sampler in ("sampler/0", "sampler/1"):
            await check(run, sampler, second)
    for sampler in ("sampler/0", "sampler/1"):
        assert loads(run, sampler) == [("0.1", "collective"), ("0.2", "collective")]
        assert all(line["off_by"] < 1e-4 for line in run.logged("weights_loaded", sampler))
        assert not run.logged("weights_not_received", sampler)
    formed = run.logged("group_formed")
    assert [(sorted(line["samplers"]), line["ranks"]) for line in formed] == [(["sampler/0", "sampler/1"], 2)] * 2
    assert len({line["group"] for line in formed}) == 2
    assert [line["version"] for line in run.logged("weights_sent", "rank/0")] == ["0.1", "0.2"]


async def test_a_killed_server_stops_neither_the_other_nor_the_learner(
    tmp_path: Path, models: list[Path], pair: Pair
) -> None:
    groups = GroupSettings(join_s=5.0, form_s=5.0, send_s=10.0)
    async with training(tmp_path / "run", models[0], pair, groups, every=20) as run:
        await run.seats.play(2, None)
        await run.enter(Phase.BC)  # without an end, and a version every moment
        async with asyncio.timeout(WAIT_S):
            while len(run.logged("weights_sent", "rank/0")) < 2:  # noqa: ASYNC110 - the log is the only witness
                await asyncio.sleep(0.05)
            os.killpg(pair[1].pid, signal.SIGKILL)
            before = len(loads(run, "sampler/0"))
            while [way for _, way in loads(run, "sampler/0")[before:]].count("collective") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        held = Version.parse(loads(run, "sampler/0")[-1][0])
        await run.until(lambda figures: figures.trained > held)
    assert run.logged("engine_died", "sampler/1")
    assert not run.logged("engine_died", "sampler/0")
    assert not run.logged("weights_suspect", "sampler/0")
    alone = [line for line in run.logged("group_formed") if line["samplers"] == ["sampler/0"]]
    assert alone
    assert all(line["ready_s"] < 5.0 for line in alone[1:]), "nobody is waited for who has said that he does not come"
