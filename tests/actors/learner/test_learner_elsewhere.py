"""The learner's actor on another machine does what it does here, and a lost one goes on from the checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs import compose
from actors.learner.folders import RunFolders
from actors.replay.messages import Phase
from runtime.logs.reader import read_logs
from runtime.system import HostSpec
from tests.actors.learner.stand_ins import Sampler
from tests.actors.learner.test_learner_actor import FAST, PLACERS, Run, base, pid_of, running, v  # noqa: F401 - a fixture


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> HostSpec:
    """The learner's host."""
    path = f"{PLACERS.parent.parent}{os.pathsep}{PLACERS}"
    monkeypatch.setenv("PYTHONPATH", path)
    deploy, _ = deploy_files.load("smoke", ["cluster.engine=ray", "learner.actor_place={desktops: 1}"])
    (spec,) = compose.placed(deploy)["learner.actor_place"]
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
    async with running(folder, base, learner_away=away, checkpoint_every=2) as run:
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
