"""Two rank processes that share a model: they do as one does, and a killed one costs what came after the checkpoint."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from actors.learner.config import GroupSettings, LearnerConfig, RankSettings
from actors.learner.messages import (
    Broadcast,
    Broadcasting,
    ExportWeights,
    LoadModel,
    ModelLoaded,
    SaveCheckpoint,
    Saved,
    StepPlan,
    StepResult,
)
from policy import checkpoints, hf_folder, tensorfiles
from policy.packing import Aggregation, PackedSample, pack, sample_weights
from policy.settings import ParallelConfig
from runtime.errors import ActorGone, ConfigError
from runtime.logs.reader import read_logs
from runtime.messaging.message import Request, Version
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy
from tests.policy import tiny_models
from tests.policy.test_broadcast import begin, said, tell

RANKS = ("rank/0", "rank/1")
TIMEOUT_S = 250.0
PARALLEL = ParallelConfig(tensor=2, sequence=True)


def plan(number: int, lineage: int = 0) -> StepPlan:
    lengths = [3, 5, 2]
    weights = sample_weights(lengths, Aggregation.TOKEN_MEAN)
    samples = [
        PackedSample(ids=[7, number, 1, k, 8, 2, k, 9], response_len=n, weight=w)
        for k, (n, w) in enumerate(zip(lengths, weights, strict=True))
    ]
    version = Version(lineage=lineage, step=number)
    return StepPlan(
        plan_id=f"{version}", kind="cross_entropy", version=version, micro_batches=pack(samples, 12), lr=1e-3
    )


class Ranks:
    """Rank processes, asked as the learner asks them."""

    def __init__(self, system: ActorSystem, folder: Path) -> None:
        self.system, self.folder = system, folder

    async def ask(self, msg: Request[Any]) -> Any:
        return await self.system.ref(RANKS[0]).ask(msg, timeout_s=TIMEOUT_S)

    async def kill_amid(self, name: str, msg: Request[Any], doing: str) -> None:
        """Kill rank `name` while rank 0 carries out `msg`: it waits for rank 1, which was stopped before."""
        pids = {status.name: status.pid for status in await self.system.statuses() if status.name in RANKS}
        os.kill(pids["rank/1"], signal.SIGSTOP)
        asked = asyncio.create_task(self.ask(msg))
        async with asyncio.timeout(60):
            while not any(s.doing.startswith(doing) for s in await self._first()):  # noqa: ASYNC110  nothing else shows it
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert not asked.done()
        os.kill(pids[name], signal.SIGKILL)
        if name != "rank/1":
            os.kill(pids["rank/1"], signal.SIGCONT)
        with pytest.raises(ActorGone):
            await asked

    async def _first(self) -> list[Any]:
        return await self.system._routes.hosts["ranks/0"].statuses()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Ranks]:
    """Two ranks."""
    fast = RestartPolicy(first_delay_s=0.01, max_restarts=5)
    spec = HostSpec(name="ranks", env={"OMP_NUM_THREADS": "1"}, restart=fast)
    hosts = [msgspec.structs.replace(spec, name=f"ranks/{i}") for i in range(2)]
    settings = RankSettings(learner=LearnerConfig(parallel=PARALLEL), ranks=RANKS)
    async with ActorSystem(folder, hosts=hosts) as system:
        factory = "actors.learner.rank:RankActor"
        await system.spawn(
            *(ActorSpec(name=name, factory=factory, config=settings, host=f"ranks/{i}") for i, name in enumerate(RANKS))
        )
        yield Ranks(system, folder)


async def assert_sent(ranks: Ranks, exported: Path) -> None:
    """Rank 0 sends the whole of what was kept of version 0.1 to an engine."""
    engine = begin()
    try:
        assert await asyncio.to_thread(said, engine) == "ready"
        groups = GroupSettings(form_s=60.0, send_s=60.0)
        sending = Broadcast(version=plan(1).version, group="one", ranks=1, settings=groups)
        opened: Broadcasting = await ranks.ask(sending)
        written = hf_folder.read(exported)
        raw = [tensor.flatten().view(torch.uint8) for tensor in written.values()]
        tell(engine, opened, 1, 2, "one", sum(one.numel() for one in raw), "stay")
        assert await asyncio.to_thread(said, engine) == str(sum(int(one.long().sum()) for one in raw))
    finally:
        engine.kill()
        engine.communicate()


@pytest.mark.proof
@pytest.mark.timeout(500)
async def test_a_killed_rank_costs_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    base = tiny_models.write(tmp_path / "base", "qwen3", tied=False)
    saved_at, never = tmp_path / "1", tmp_path / "2"
    zero = Version(lineage=0, step=0)
    async with running(tmp_path / "run") as ranks:
        loaded: ModelLoaded = await ranks.ask(LoadModel(location=str(base), checkpoint=False, version=zero))
        assert loaded.parameters == sum(tensor.numel() for tensor in hf_folder.read(base).values())
        first: StepResult = await ranks.ask(plan(1))
        saved: Saved = await ranks.ask(SaveCheckpoint(version=plan(1).version, location=str(saved_at)))
        kept: Saved = await ranks.ask(
            ExportWeights(version=plan(1).version, location=str(tmp_path / "export"), keep=True)
        )
        assert kept.digest == tensorfiles.digest(tmp_path / "export")
        await assert_sent(ranks, tmp_path / "export")
        second: StepResult = await ranks.ask(plan(2))
        assert (first.ok, second.ok) == (True, True)

        await ranks.kill_amid("rank/1", SaveCheckpoint(version=plan(2).version, location=str(never)), "saving")
        assert not never.exists()
        assert [version for version, _ in checkpoints.complete(tmp_path)] == [plan(1).version]
        resume = LoadModel(
            location=str(saved_at), checkpoint=True, version=Version(lineage=1, step=1), digest=saved.digest
        )
        with pytest.raises(ConfigError, match="its files are not those that the run saved"):
            await ranks.ask(msgspec.structs.replace(resume, digest="another"))
        await ranks.ask(resume)
        again: StepResult = await ranks.ask(plan(2, lineage=1))
        assert again.figures["loss"] == second.figures["loss"]
        assert again.figures["grad_norm"] == pytest.approx(second.figures["grad_norm"], rel=1e-6)

        await ranks.kill_amid("rank/0", plan(3, lineage=1), "step")
        await ranks.ask(msgspec.structs.replace(resume, version=Version(lineage=2, step=1)))
        final: StepResult = await ranks.ask(plan(2, lineage=2))
        assert final.figures["loss"] == second.figures["loss"]
    ended = [line["cause"] for line in read_logs(tmp_path / "run") if line["event"] == "rank_ends"]
    assert any(cause.startswith("SaveCheckpoint: ") and "ActorGone" in cause for cause in ended), ended
