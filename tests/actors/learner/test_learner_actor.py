"""The learner with a real ledger and a real rank, in a process of its own where a test kills it."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.learner.actor import LearnerActor
from actors.learner.config import GroupSettings, LearnerConfig, LearnerSettings, RankSettings, RlConfig, SftConfig
from actors.learner.folders import RunFolders
from actors.learner.messages import GetLearnerState, StepPlan, WriteWeights
from actors.learner.probe import Probe
from actors.learner.turns import CardTurns
from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.messages import CloseRun, Figures, GetFigures, Phase, PhaseRef, SetPhase, WaitFigures
from actors.settings import DemosConfig
from policy import checkpoints, tensorfiles
from policy.errors import NoModel
from runtime.errors import ActorFailed
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version
from runtime.system import ActorSpec, ActorSystem, HostSpec, RestartPolicy
from tests.actors.learner.stand_ins import SEATS, Sampler, Seats, Sleeper, payload
from tests.policy import tiny_models

FAST = RestartPolicy(first_delay_s=0.01, max_restarts=3)


def v(text: str) -> Version:
    return Version.parse(text)


class Run:
    """A run of three actors and a seat, driven by hand where Entropulse would drive it."""

    def __init__(self, system: ActorSystem, folder: Path) -> None:
        self.system = system
        self.folder = folder
        self.replay = system.ref("replay")
        self.seats = Seats(self.replay, folder)
        self.phases = 0

    async def figures(self) -> Figures:
        return await self.replay.ask(GetFigures(), timeout_s=10)

    async def until(self, what: Callable[[Figures], bool]) -> Figures:
        """Wait for the ledger to get there."""
        async with asyncio.timeout(100):
            figures = await self.figures()
            while not what(figures):
                figures = await self.replay.ask(WaitFigures(since=figures.revision, wait_s=5), timeout_s=20)
            return figures

    async def enter(self, phase: Phase, steps: int | None = None, cause: str = "counted") -> None:
        now = (await self.figures()).phase
        following = PhaseRef(phase=phase, index=now.index + 1)
        await self.replay.ask(
            SetPhase(expected=now, next=following, cause=cause, evidence={}, steps=steps), timeout_s=10
        )

    async def trained(self, version: str) -> Figures:
        return await self.until(lambda figures: figures.trained >= v(version))

    def logged(self, event: str, actor: str = "learner") -> list[dict[str, Any]]:
        return [line for line in read_logs(self.folder) if line["event"] == event and line["actor"] == actor]


@asynccontextmanager
async def running(
    folder: Path,
    base: Path,
    groups: GroupSettings | None = None,
    *,
    apart: bool = False,
    turns: bool = False,
    shared: bool = False,
    pulse: str = "full",
    samplers: Sequence[ActorSpec] = (ActorSpec(name="sampler/0", factory=Sampler),),
    **settings: Any,
) -> AsyncIterator[Run]:
    """A run; its rank is in a process of its own where it is to be `apart`, which takes seconds to import torch.

    The learner also announces weights to a sampler that is not there.
    """
    ledger = LedgerSettings(
        seed=1,
        train_tasks=["t0", "t1", "t2"],
        demo_tasks=["d0"],
        max_turns=4,
        demos=DemosConfig(count=2),
        rules=ReplayConfig(group_size=2, min_group_size=2, groups_per_step=1, sft_batch_size=2, max_staleness=1),
        incarnation=str(id(settings)),
        pulse=pulse,
    )
    rl, sft = RlConfig(lr=1e-3, warmup_steps=0, kl_coef=0.01), SftConfig(lr=3e-3, warmup_steps=0)
    learner = LearnerConfig(**{"rl": rl, "sft": sft, **settings})
    spec = LearnerSettings(
        learner=learner,
        model=str(base),
        samplers=sorted({*([] if turns else ["sampler/1"]), *(one.name for one in samplers)}),
        turns=turns,
        transport="shared" if shared else "collective" if groups else "disk",
        groups=groups,
        keep_weights=2,
        take_wait_s=2.0,
    )
    hosts = [HostSpec(name="rank", env={"OMP_NUM_THREADS": "1"}, restart=FAST)] if apart else []
    async with ActorSystem(folder, hosts=hosts) as system:
        await system.spawn(ActorSpec(name="replay", factory="actors.replay.actor:ReplayActor", config=ledger))
        await system.spawn(*samplers)
        rank = ActorSpec(
            name="rank/0",
            factory="actors.learner.rank:RankActor",
            config=RankSettings(learner=learner, turns=turns),
            restart=FAST,
        )
        await system.spawn(
            msgspec.structs.replace(rank, host="rank") if apart else rank,
            ActorSpec(name="learner", factory="actors.learner.actor:LearnerActor", config=spec, restart=FAST),
        )
        run = Run(system, folder)
        try:
            yield run
        finally:
            run.seats.close()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    Sampler.heard.clear()
    return tiny_models.write(tmp_path / "base")


async def rank_pid(run: Run) -> int:
    return await pid_of(run, "rank/0")


async def pid_of(run: Run, name: str) -> int:
    return next(status.pid for status in await run.system.statuses() if status.name == name)


@pytest.mark.engine
async def test_from_demonstrations_to_rl_and_back_after_a_killed_rank(tmp_path: Path, base: Path) -> None:
    async with running(tmp_path / "run", base, apart=True, checkpoint_every=2, probe_every=1) as run:
        assert [w.version for w in Sampler.heard] == [v("0.0")]
        assert await run.seats.play(2, None) == 2
        await run.enter(Phase.BC, steps=3)
        figures = await run.until(lambda f: f.checkpointed == v("0.3"))  # due at 2, and because the stay is over
        assert figures.trained == v("0.3")
        assert {w.version for w in Sampler.heard} == {v("0.0"), v("0.2"), v("0.3")}, "announced with its checkpoints"
        await run.enter(Phase.RL)
        await run.until(lambda f: f.served == v("0.3"))
        await run.seats.play(2, v("0.3"))
        figures = await run.trained("0.4")
        assert figures.endings["trained"] == 1
        assert len(figures.entropy) == 1
        assert 4.0 < figures.entropy[0] < 4.7  # a nearly uniform policy over 96 tokens

        await run.seats.play(2, v("0.4"))
        await run.trained("0.5")  # in no checkpoint: the newest is 0.4
        os.kill(await rank_pid(run), signal.SIGKILL)
        await run.seats.play(2, v("0.5"))
        figures = await run.until(lambda f: f.trained.lineage == 1)
        assert figures.trained >= v("1.4")
        await run.until(lambda f: f.served is not None and f.served.lineage == 1)
        while (await run.figures()).trained < v("1.5"):
            await run.seats.play(2, (await run.figures()).trained, wait_s=1.0)
        resumed = run.logged("learner_resumed")
        assert [(line["version"], line["parent"]) for line in resumed] == [("1.4", "0.4")]
        await run.until(lambda f: f.served == f.trained)

        versions = [w.version for w in Sampler.heard]
        assert versions == sorted(versions)
        assert len({(w.version, w.digest) for w in Sampler.heard}) == len(set(versions)), "one version, two weights"
        newest = Sampler.heard[-1]
        assert tensorfiles.digest(Path(newest.location)) == newest.digest
        state = await run.system.ref("learner").ask(GetLearnerState(), timeout_s=30)
        assert (state.version, state.location) == (newest.version, newest.location)
        exports = [path.name for path in (run.folder / "weights").iterdir() if not path.name.startswith(".")]
        assert len(exports) <= 3, exports  # two are kept, and the newest until the others are pruned

        steps = run.logged("learner_step")
        assert [line["kind"] for line in steps[:4]] == ["cross_entropy"] * 3 + ["grpo"]
        assert all(line["t0"] < line["t1"] for line in steps)
        assert all(line["figures"]["wait_s"] > 0 for line in steps)
        assert [line["figures"]["stay_step"] for line in steps[:4]] == [0.0, 1.0, 2.0, 0.0]
        assert {"wait_s", "reference_s", "kl", "staleness_max"} <= steps[3]["figures"].keys()
        assert ["probe_entropy" in line["figures"] for line in steps[:4]] == [False] * 3 + [True]
        shown = [payload(rng, None).prompt_ids for rng in [random.Random(SEATS)] for _ in range(4)]
        kept = [one.prompt_ids for one in Probe(run.folder).prompts]
        assert len(kept) >= 4, "the steps of a group at least"
        assert not [one for one in shown if one in kept], "prompts of demonstrations"
        announced = run.logged("weights_announced")[-1]
        assert (announced["samplers"], announced["missed"]) == (["sampler/0"], ["sampler/1"])


@pytest.mark.engine
async def test_a_trial_that_failed_is_undone_to_the_weights_before_it(tmp_path: Path, base: Path) -> None:
    """`keep_checkpoints` is 2, and three checkpoints follow that of the trial's beginning."""
    rl = RlConfig(lr=1e-3, warmup_steps=0, kl_coef=0.0)
    async with running(tmp_path / "run", base, pulse="trials", checkpoint_every=1, rl=rl) as run:

        async def step(to: str) -> None:
            while (now := (await run.figures()).trained) < v(to):
                await run.seats.play(2, now, wait_s=1.0)
            await run.until(lambda f: f.checkpointed == f.trained == f.served)

        await run.seats.play(2, None)
        await run.enter(Phase.BC, steps=1)
        await run.until(lambda f: f.checkpointed == v("0.1") == f.served)
        await run.enter(Phase.RL, steps=1)
        await step("0.2")
        before = next(w.digest for w in Sampler.heard if w.version == v("0.2"))
        await run.enter(Phase.PULSE, steps=3, cause="trial")
        for made in ("0.3", "0.4", "0.5"):
            await step(made)
        kept = {"0.2", "0.4", "0.5"}  # the newest two, and where the trial began; the rest is being deleted
        await run.until(lambda _: {path.name for path in (run.folder / "checkpoints").iterdir()} == kept)
        await run.enter(Phase.RL, steps=0, cause="rolled_back")
        figures = await run.until(lambda f: f.trained == v("1.2") == f.served)
        assert figures.trials is not None
        assert (figures.trials.state, figures.steps[Phase.RL]) == ("left", 1)
        assert next(w.digest for w in Sampler.heard if w.version == v("1.2")) == before
        await run.enter(Phase.RL, steps=1)
        await step("1.3")


@pytest.mark.engine
async def test_the_rank_computes_only_in_the_learner_s_turn_and_a_killed_one_s_turn_ends(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, before, over = list[tuple[str, bool]](), CardTurns.before, CardTurns.over
    kill_at: list[int] = []

    async def noted(turns: CardTurns, msg: Any) -> None:
        await before(turns, msg)
        asked.append((type(msg).__name__, Sleeper.asleep))
        if kill_at and isinstance(msg, StepPlan):
            os.kill(kill_at.pop(), signal.SIGKILL)

    async def ended(turns: CardTurns, ask_rank: Any) -> None:
        await over(turns, ask_rank)
        asked.append(("over", Sleeper.asleep))

    monkeypatch.setattr(CardTurns, "before", noted)
    monkeypatch.setattr(CardTurns, "over", ended)
    sleeper = ActorSpec(name="sampler/0", factory=Sleeper)
    async with running(tmp_path / "run", base, apart=True, turns=True, samplers=[sleeper], checkpoint_every=9) as run:
        assert [name for name, _ in asked[:4]] == ["LoadModel", "ExportWeights", "Rest", "over"]
        await run.seats.play(2, None)
        await run.enter(Phase.BC, steps=3)
        await run.until(lambda f: f.checkpointed == v("0.3"))
        names = [name for name, _ in asked]
        first, last = names.index("StepPlan"), len(names) - names[::-1].index("StepPlan")
        assert "over" not in names[first:last], "steps that follow each other at once are of one turn"
        await run.enter(Phase.RL)
        await run.until(lambda f: f.served == v("0.3"))
        kill_at.append(await rank_pid(run))
        await run.seats.play(2, v("0.3"))
        await run.until(lambda f: f.served is not None and f.served.lineage == 1)
        while (await run.figures()).trained < v("1.4"):
            await run.seats.play(2, (await run.figures()).trained, wait_s=1.0)
        await run.until(lambda f: f.served == f.trained)
        assert not kill_at
        await run.until(lambda _: not Sleeper.asleep)  # another batch may have begun a turn
    needs = {"LoadModel", "StepPlan", "ExportWeights"}
    assert {asleep for name, asleep in asked if name in needs} == {True}
    assert {asleep for name, asleep in asked if name == "over"} == {False}
    assert ("SaveCheckpoint", False) in asked, "it is written while the engine draws"


@pytest.mark.slow
async def test_a_new_start_goes_on_from_the_last_checkpoint(
    tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ledger = list[str](), LearnerActor._ledger

    async def told(learner: LearnerActor, msg: Any, timeout_s: float) -> Any:
        asked.append(type(msg).__name__)
        return await ledger(learner, msg, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(LearnerActor, "_ledger", told)
        async with running(tmp_path / "run", base, checkpoint_every=100) as run:
            await run.seats.play(2, None)
            await run.enter(Phase.BC)
            await run.trained("0.2")
    assert asked.count("GetFigures") == 1, "at its start: no more weights lie there than are kept"
    saved = run.logged("checkpoint_saved")
    assert [line["cause"] for line in saved] == ["first", "stop"]
    parent = v(saved[-1]["version"])
    assert {w.version for w in Sampler.heard} == {v("0.0")}
    assert (run.folder / "weights" / str(parent) / "model.safetensors").is_file(), "what was stopped can be exported"
    Sampler.heard.clear()
    found = RunFolders(run.folder).checkpoints()
    late = run.folder / "checkpoints" / "0.9000"  # a save that came to an end after its learner had looked for one
    shutil.copytree(run.folder / "checkpoints" / str(parent), late)
    (late / checkpoints.MARKER).write_text('{"version": "0.9000", "has_reference": false, "dtype": "float32"}')
    monkeypatch.setattr(RunFolders, "checkpoints", lambda _: found)
    async with running(tmp_path / "run", base, checkpoint_every=10_000) as run:
        assert not late.exists(), "the ledger has undone what it holds"
        assert Sampler.heard[0].version == Version(lineage=1, step=parent.step)
        await run.trained(f"1.{parent.step + 1}")
        await run.replay.ask(CloseRun(), timeout_s=10)
        await run.until(lambda f: f.checkpointed == f.trained)
    assert run.logged("checkpoint_saved")[-1]["cause"] == "run over"
    steps = [(v(line["version"]), line["loss"]) for line in run.logged("learner_step")]
    assert [version for version, _ in steps] == sorted(version for version, _ in steps)
    before, after = [loss for version, loss in steps if version.lineage == 0], steps[-1][1]
    assert after < before[0]


@pytest.mark.slow
async def test_a_segment_that_is_gone_costs_its_groups_and_samples_and_not_the_run(tmp_path: Path, base: Path) -> None:
    async with running(tmp_path / "run", base, checkpoint_every=100) as run:
        await run.seats.play(2, None)
        segments = sorted((run.folder / "segments").glob("*.seg"))
        whole = {path: path.read_bytes() for path in segments}
        for path, content in whole.items():
            path.write_bytes(content[: len(content) // 2])  # as after a disk's fault: some steps are left
        await run.enter(Phase.BC, steps=2)
        await run.until(lambda f: f.checkpointed == v("0.2"))
        assert run.logged("payloads_unreadable", "replay")[0]["samples"] > 0
        await run.enter(Phase.RL)
        await run.until(lambda f: f.served == v("0.2"))
        for path, content in whole.items():
            path.write_bytes(content)
        ended = (await run.figures()).endings
        while (await run.figures()).endings.get("lost", 0) == ended.get("lost", 0):
            await run.seats.play(2, (await run.figures()).trained, wait_s=1.0)
            for path in (run.folder / "segments").glob("*.seg"):
                os.truncate(path, 0)
        assert run.logged("payloads_unreadable", "replay")[-1]["groups"] > 0


@pytest.mark.slow
async def test_a_batch_whose_own_rewards_are_equal_ends_its_groups_and_not_the_learner(
    tmp_path: Path, base: Path
) -> None:
    rl = RlConfig(reward="tests.actors.learner.test_batches:same")
    async with running(tmp_path / "run", base, rl=rl) as run:
        await run.seats.play(2, None)
        await run.enter(Phase.BC, steps=1)
        await run.until(lambda f: f.checkpointed == v("0.1"))
        await run.enter(Phase.RL)
        await run.until(lambda f: f.served == v("0.1"))
        while not run.logged("groups_without_signal"):
            await run.seats.play(2, v("0.1"), wait_s=1.0)
        figures = await run.until(lambda f: f.endings.get("zero_variance", 0) > 0 and not f.groups_leased)
        assert figures.trained == v("0.1")
        assert len(run.logged("learner_started")) == 1


class Planted:
    """What runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.file}",)


@pytest.mark.slow
async def test_a_checkpoint_that_was_changed_is_never_unpickled(tmp_path: Path, base: Path) -> None:
    async with running(tmp_path / "run", base, checkpoint_every=100) as run:
        await run.seats.play(2, None)
        await run.enter(Phase.BC)
        await run.trained("0.1")
    newest, older = RunFolders(run.folder).checkpoints()[:2]
    metadata = newest[1] / "shards" / ".metadata"
    saved = metadata.read_bytes()
    metadata.write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    changed = rf"ConfigError: {newest[1]}: shards/\.metadata differs: its files are not those that the run saved"
    with pytest.raises(ActorFailed, match=changed):
        async with running(tmp_path / "run", base, checkpoint_every=100) as again:
            pass
    assert not (tmp_path / "ran").exists()
    metadata.write_bytes(saved)
    stray = shutil.copytree(older[1], run.folder / "checkpoints" / "0.9000")  # one that the ledger never heard of
    (stray / checkpoints.MARKER).write_text('{"version": "0.9000", "has_reference": false, "dtype": "float32"}')
    async with running(tmp_path / "run", base, checkpoint_every=100) as again:
        assert v(again.logged("learner_resumed")[-1]["parent"]) == newest[0], "as it was saved it is loaded"
        assert v(again.logged("learner_started")[-1]["version"]).step < 9000


@pytest.mark.slow
async def test_weights_by_collective_are_on_disk_when_somebody_needs_them_there(tmp_path: Path, base: Path) -> None:
    folder = tmp_path / "run" / "weights"

    def on_disk() -> set[str]:
        return {path.name for path in folder.iterdir()}

    async with running(tmp_path / "run", base, GroupSettings(), checkpoint_every=10_000) as run:
        learner = run.system.ref("learner")
        await run.seats.play(2, None)
        await run.enter(Phase.BC, steps=1)
        await run.until(lambda f: f.checkpointed == v("0.1"))
        assert on_disk() == {"0.0", "0.1"}, "beside each checkpoint"
        await run.enter(Phase.RL)
        for served in map(v, ("0.1", "0.2", "0.3")):
            await run.until(lambda f, now=served: f.served == now)  # type: ignore[misc]
            await run.seats.play(2, served)
        await run.until(lambda f: f.served == v("0.4"))
        assert on_disk() == {"0.0", "0.1"}, "nobody has asked for the others"
        assert [w.digest for w in Sampler.heard if w.version > v("0.1")] == ["", "", ""]

        newest = Sampler.heard[-1]
        with pytest.raises(NoModel, match=r"newest weights are 0\.4, not 0\.3"):
            await learner.ask(WriteWeights(version=v("0.3")), timeout_s=60)
        both = await asyncio.gather(*(learner.ask(WriteWeights(version=v("0.4")), timeout_s=60) for _ in range(2)))
        assert both[0] == both[1]
        assert (both[0].location, both[0].canary) == (newest.location, newest.canary)
        assert tensorfiles.digest(Path(newest.location)) == both[0].digest
        assert {"0.4"} <= on_disk() <= {"0.0", "0.1", "0.4"}
        await run.seats.play(2, v("0.4"))
        await run.until(lambda f: f.served == v("0.5"))
        await run.replay.ask(CloseRun(), timeout_s=10)
        await run.until(lambda f: f.checkpointed == v("0.5"))
        assert "0.5" in on_disk(), "what a run ends with can be evaluated and exported"
