"""The learner's actor on another machine does what it does here, and a lost one goes on from the checkpoint."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from actors.cluster.config import deploy_files
from actors.cluster.runs import placement
from actors.learner.config import GroupSettings
from actors.learner.folders import RunFolders
from actors.learner.messages import JoinGroup, Ticket
from actors.replay.messages import Phase
from policy import hf_folder
from runtime.logs.reader import read_logs
from runtime.system import HostSpec
from tests.actors.learner.stand_ins import Sampler
from tests.actors.learner.test_learner_actor import FAST, PLACERS, Run, base, pid_of, running, v  # noqa: F401 - a fixture
from tests.policy.test_broadcast import begin, said, tell

FILING = "tests.actors.learner.filing_learner:FilingLearner"


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> HostSpec:
    """The learner's host."""
    path = f"{PLACERS.parent.parent}{os.pathsep}{PLACERS}"
    monkeypatch.setenv("PYTHONPATH", path)
    deploy, _ = deploy_files.load("smoke", ["cluster.engine=ray", "learner.actor_place={desktops: 1}"])
    (spec,) = placement.placed(deploy)["learner.actor_place"]
    return msgspec.structs.replace(spec, env={"PYTHONPATH": path}, restart=FAST)


async def learn(run: Run) -> list[dict[str, Any]]:
    """Three steps of cloning and one of RL; what was logged of them, but for times."""
    assert await run.seats.play(2, None) == 2
    await run.enter(Phase.BC, steps=3)
    await run.until(lambda f: f.checkpointed == v("0.3"))
    await run.enter(Phase.RL)
    await run.until(lambda f: f.served == v("0.3"))
    await run.seats.play(2, v("0.3"))
    await run.trained("0.4")
    timed = ("ts", "t", "t0", "t1", "pid", "host", "trace", "figures")
    return [
        {key: value for key, value in line.items() if key not in timed}
        | {key: value for key, value in line["figures"].items() if not key.endswith("_s")}
        for line in run.logged("learner_step")
    ]


@pytest.mark.slow
async def test_it_learns_the_same_and_goes_on_from_the_checkpoint(tmp_path: Path, base: Path, away: HostSpec) -> None:  # noqa: F811
    async with running(tmp_path / "here", base, checkpoint_every=2) as run:
        here = await learn(run)
    Sampler.heard.clear()
    folder = tmp_path / "run"
    async with running(folder, base, learner_away=away, factory=FILING, checkpoint_every=2) as run:
        assert await learn(run) == here
        assert {Path(one.location).parent for one in Sampler.heard} == {folder / "weights"}
        two = [v("0.4"), v("0.3")]  # older ones go after a newer one counts
        await run.until(lambda _: [version for version, _ in RunFolders(folder).checkpoints()] == two)
        assert len(list((folder / "weights").iterdir())) <= 3

        await run.until(lambda f: f.served == v("0.4"))
        await run.seats.play(2, v("0.4"))
        await run.trained("0.5")  # in no checkpoint
        os.kill(await pid_of(run, "learner"), signal.SIGKILL)
        await run.until(lambda f: f.trained.lineage == 1)
        await run.until(lambda f: f.served is not None and f.served.lineage == 1)
        resumed = run.logged("learner_resumed")
        assert [(line["version"], line["parent"]) for line in resumed] == [("1.4", "0.4")]
        while (await run.figures()).trained < v("1.6"):
            await run.seats.play(2, (await run.figures()).trained, wait_s=1.0)
        await run.until(lambda f: f.checkpointed == v("1.6"))
    assert [line["name"] for line in read_logs(folder, event="host_lost")] == ["learner"]
    versions = [one.version for one in Sampler.heard]
    assert versions == sorted(versions)
    assert len({(one.version, one.digest) for one in Sampler.heard}) == len(set(versions)), "one version, two weights"
    assert not (folder / "plans").exists()
    assert not list(read_logs(folder, event="actor_failed"))


@pytest.mark.slow
async def test_a_payload_that_is_lost_costs_its_group(tmp_path: Path, base: Path, away: HostSpec) -> None:  # noqa: F811
    async with running(tmp_path / "run", base, learner_away=away, checkpoint_every=100) as run:
        await learn(run)
        for path in (run.folder / "segments").glob("*.seg"):
            os.truncate(path, 0)
        while not run.logged("payloads_unreadable", "replay"):
            await run.seats.play(2, (await run.figures()).trained, wait_s=1.0)
            for path in (run.folder / "segments").glob("*.seg"):
                os.truncate(path, 0)
        (lost,) = run.logged("payloads_unreadable", "replay")[:1]
        assert lost["groups"] > 0
        assert "does not hold" in lost["cause"] or "can't read" in lost["cause"]
        assert not list(read_logs(run.folder, event="host_lost"))


@pytest.mark.proof
@pytest.mark.engine
async def test_it_forms_groups_for_weights_by_collective(tmp_path: Path, base: Path, away: HostSpec) -> None:  # noqa: F811
    groups = GroupSettings(form_s=60.0, send_s=60.0)
    engine = begin()
    try:
        assert await asyncio.to_thread(said, engine) == "ready"
        async with running(tmp_path / "run", base, groups, learner_away=away, checkpoint_every=100) as run:
            join = JoinGroup(version=v("0.0"), sampler="sampler/0", ranks=1)
            ticket = await run.system.ref("learner").ask(join, timeout_s=90)
            assert isinstance(ticket, Ticket)
            raw = [one.flatten().view(torch.uint8) for one in hf_folder.read(run.folder / "weights" / "0.0").values()]
            size = sum(one.numel() for one in raw)
            tell(engine, ticket.sender, ticket.rank, ticket.request.ranks + 1, ticket.request.group, size, "stay")
            assert await asyncio.to_thread(said, engine) == str(sum(int(one.long().sum()) for one in raw))
    finally:
        engine.kill()
        engine.communicate()
    (formed,) = run.logged("group_formed")
    assert (formed["samplers"], formed["ranks"]) == (["sampler/0"], 1)
