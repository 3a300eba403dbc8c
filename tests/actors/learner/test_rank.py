"""One rank: plans once, versions exactly, and it keeps answering."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
import torch.distributed.checkpoint as dcp

from actors.learner.config import GroupSettings, LearnerConfig, RankSettings, RlConfig, SftConfig
from actors.learner.messages import Broadcast, ExportWeights, LoadModel, LookAt, SaveCheckpoint, StepPlan, WriteKept
from actors.learner.rank import RankActor, _written
from policy import checkpoints, hf_folder
from policy.engine.model import load_weights
from policy.errors import LearnerError, NoModel
from policy.megatron import ranks
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import Aggregation, MicroBatch, PackedSample, pack_cross_entropy
from policy.settings import LoraConfig, Objective
from runtime.actor import Context
from runtime.errors import ConfigError, DiskRefuses, StoreError
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from runtime.system import ActorSpec, ActorSystem
from tests.policy import tiny_models
from tests.policy.test_broadcast import begin, said, tell
from tests.small_disk import fill, needs_root, small_disk

BATCHES = pack_cross_entropy([([3, 1, 4, 1, 5, 9, 2, 6], [(4, 8)])], 64, Aggregation.TOKEN_MEAN)


def v(step: int, lineage: int = 0) -> Version:
    return Version(lineage=lineage, step=step)


def step_to(step: int, kind: str = "cross_entropy", plan_id: str | None = None) -> StepPlan:
    return StepPlan(plan_id=plan_id or f"plan {step}", kind=kind, version=v(step), micro_batches=BATCHES, lr=1e-2)


@pytest.fixture
async def rank(tmp_path: Path) -> AsyncIterator[Ref]:
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="rank/0", factory="actors.learner.rank:RankActor", config=RankSettings()))
        yield system.ref("rank/0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.write(tmp_path / "model")


async def load(rank: Ref, model: Path) -> None:
    loaded = await rank.ask(LoadModel(location=str(model), checkpoint=False, version=v(0)), timeout_s=60)
    assert loaded.parameters > tiny_models.VOCAB


async def test_a_rank_that_has_met_no_others_refuses_to_load(tmp_path: Path, model: Path) -> None:
    both = RankSettings(ranks=("rank/0", "rank/1"))
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="rank/1", factory="actors.learner.rank:RankActor", config=both))
        with pytest.raises(NoModel, match="rank/1 has met no other ranks yet"):
            await load(system.ref("rank/1"), model)


def test_a_machine_without_the_model_names_itself_before_the_ranks_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`on_all` has every rank learn of it."""
    asked = list[str]()
    monkeypatch.setattr(ranks, "on_all", lambda work: asked.append("all") or work())
    actor, missing = RankActor(RankSettings()), tmp_path / "missing"
    actor.ctx = cast("Context", SimpleNamespace(apart=True))
    with pytest.raises(ConfigError, match=f"{socket.gethostname()} has no folder {missing}"):
        actor._load(LoadModel(location=str(missing), checkpoint=False, version=v(0)))
    assert asked == ["all"]


async def test_a_plan_is_carried_out_once(rank: Ref, model: Path) -> None:
    await load(rank, model)
    first = await rank.ask(step_to(1), timeout_s=60)
    assert first.ok
    assert first.t1 > first.t0
    assert await rank.ask(step_to(1), timeout_s=60) == first
    second = await rank.ask(step_to(2), timeout_s=60)
    assert second.figures["loss"] < first.figures["loss"]


async def test_weights_of_half_a_step_are_no_version_s(
    rank: Ref, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a later pass over a batch has a loss that is not finite."""
    await load(rank, model)

    def half(trainer: Trainer, *_: object) -> dict[str, float]:
        raise LearnerError("the second pass failed")

    monkeypatch.setattr(Trainer, "cross_entropy_step", half)
    with pytest.raises(LearnerError, match="second pass"):
        await rank.ask(step_to(1), timeout_s=60)
    with pytest.raises(NoModel, match="no model"):
        await rank.ask(SaveCheckpoint(version=v(0), location=str(tmp_path / "x")), timeout_s=60)


async def test_a_look_changes_nothing(rank: Ref, model: Path) -> None:
    await load(rank, model)
    seen = await rank.ask(LookAt(version=v(0), micro_batches=BATCHES), timeout_s=60)
    step = await rank.ask(step_to(1), timeout_s=60)
    assert seen.figures["entropy"] == pytest.approx(step.figures["entropy"])  # of the weights before the step
    assert seen.figures["accuracy"] == step.figures["accuracy"]
    with pytest.raises(NoModel):
        await rank.ask(LookAt(version=v(0), micro_batches=BATCHES), timeout_s=60)


async def test_cloning_takes_its_own_number_of_threads(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While desktops rest their processors are the rank's; beside them it keeps to `threads`."""
    threads = dict[str, int]()

    def noting(kind: str) -> Callable[..., dict[str, float]]:
        def step(*_: object) -> dict[str, float]:
            threads[kind] = torch.get_num_threads()
            return {"ok": 1.0}

        return step

    monkeypatch.setattr(Trainer, "cross_entropy_step", noting("cross_entropy"))
    monkeypatch.setattr(Trainer, "grpo_step", noting("grpo"))
    config = RankSettings(learner=LearnerConfig(rl=RlConfig(threads=1), sft=SftConfig(threads=2)))
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="rank/0", factory="actors.learner.rank:RankActor", config=config))
        rank = system.ref("rank/0")
        await load(rank, model)
        for step, kind in enumerate(("cross_entropy", "grpo", "cross_entropy"), 1):
            await rank.ask(step_to(step, kind), timeout_s=60)
            assert threads[kind] == {"cross_entropy": 2, "grpo": 1}[kind]


async def test_only_the_version_it_is_at_is_stepped_saved_or_exported(rank: Ref, model: Path, tmp_path: Path) -> None:
    with pytest.raises(NoModel, match="no model"):
        await rank.ask(step_to(1), timeout_s=60)
    await load(rank, model)
    with pytest.raises(NoModel, match=r"holds 0\.0"):
        await rank.ask(step_to(2), timeout_s=60)
    for request in (ExportWeights, SaveCheckpoint):
        with pytest.raises(NoModel):
            await rank.ask(request(version=v(1), location=str(tmp_path / "x")), timeout_s=60)
    with pytest.raises(LearnerError, match="kind"):
        await rank.ask(step_to(1, "mystery"), timeout_s=60)
    assert (await rank.ask(step_to(1), timeout_s=60)).ok


@pytest.mark.slow
async def test_a_checkpoint_starts_a_lineage(rank: Ref, model: Path, tmp_path: Path) -> None:
    await load(rank, model)
    await rank.ask(step_to(1), timeout_s=60)
    where = str(tmp_path / "checkpoint")
    digest = (await rank.ask(SaveCheckpoint(version=v(1), location=where), timeout_s=60)).digest
    after = await rank.ask(step_to(2), timeout_s=60)
    with pytest.raises(StoreError, match=r"is a checkpoint of 0\.1, not of 1\.2's step"):
        await rank.ask(LoadModel(location=where, checkpoint=True, version=v(2, 1), digest=digest), timeout_s=60)
    await rank.ask(LoadModel(location=where, checkpoint=True, version=v(1, 1), digest=digest), timeout_s=60)
    plan = StepPlan(plan_id="again", kind="cross_entropy", version=v(2, 1), micro_batches=BATCHES, lr=1e-2)
    assert (await rank.ask(plan, timeout_s=60)).figures["loss"] == pytest.approx(after.figures["loss"], rel=1e-6)
    with pytest.raises(StoreError):
        await rank.ask(LoadModel(location=str(tmp_path), checkpoint=True, version=v(0)), timeout_s=60)
    with pytest.raises(ConfigError):
        await rank.ask(LoadModel(location=str(tmp_path), checkpoint=False, version=v(0)), timeout_s=60)


@pytest.mark.slow
async def test_a_reference_is_there_only_where_a_kl_term_is(rank: Ref, model: Path, tmp_path: Path) -> None:
    samples = [
        PackedSample(ids=[3, 1, 4, 1, 5], response_len=2, weight=0.5, advantage=1.0, behaviour_logprobs=[-4, -5])
    ]

    digests: dict[int, str] = {}

    async def step(number: int, kl_coef: float) -> tuple[dict[str, float], bool]:
        plan = msgspec.structs.replace(
            step_to(number, "grpo"), micro_batches=[MicroBatch(samples=samples)], objective=Objective(kl_coef=kl_coef)
        )
        figures = (await rank.ask(plan, timeout_s=60)).figures
        where = tmp_path / str(number)
        saved = await rank.ask(SaveCheckpoint(version=v(number), location=str(where)), timeout_s=60)
        digests[number] = saved.digest
        return figures, checkpoints.read_info(where).has_reference

    await load(rank, model)
    figures, kept = await step(1, 0.0)
    assert (figures.keys() & {"kl", "reference_s"}, kept) == (set(), False)
    await rank.ask(
        LoadModel(location=str(tmp_path / "1"), checkpoint=True, version=v(1), digest=digests[1]), timeout_s=60
    )
    figures, kept = await step(2, 0.1)  # resumed with a coefficient that was 0: held to the weights of that moment
    assert (figures["kl"], kept) == (pytest.approx(0.0, abs=1e-6), True)
    figures, _ = await step(3, 0.1)
    assert figures["kl"] > 1e-6


async def test_an_adapter_goes_alone_and_whole_weights_are_written_when_they_are_asked_for(
    tmp_path: Path, model: Path
) -> None:
    config = RankSettings(learner=LearnerConfig(lora=LoraConfig(rank=4)))
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="rank/0", factory="actors.learner.rank:RankActor", config=config))
        rank, whole, adapter = system.ref("rank/0"), tmp_path / "1", tmp_path / "adapter"
        await load(rank, model)
        await rank.ask(step_to(1), timeout_s=60)
        export = ExportWeights(version=v(1), location=str(whole), keep=True, write=False, adapter=str(adapter))
        saved = await rank.ask(export, timeout_s=60)
        assert (saved.digest, whole.exists()) == ("", False)
        await rank.ask(step_to(2), timeout_s=60)
        assert (await rank.ask(WriteKept(version=v(1), location=str(whole)), timeout_s=60)).digest
    device = torch.device("cpu")
    engine = load_weights(model, device, adapter=adapter)
    assert engine.digest == saved.adapter_digest
    assert torch.equal(engine.layers[1].qkv, load_weights(whole, device).layers[1].qkv)


def sending(step: int, group: str) -> Broadcast:
    return Broadcast(version=v(step), group=group, ranks=1, settings=GroupSettings(send_s=20.0))


@pytest.mark.slow
async def test_what_was_exported_is_sent_while_training_goes_on(rank: Ref, model: Path, tmp_path: Path) -> None:
    await load(rank, model)
    with pytest.raises(NoModel, match="has kept None"):
        await rank.ask(sending(0, "early"), timeout_s=20)
    saved = await rank.ask(ExportWeights(version=v(0), location=str(tmp_path / "0"), keep=True), timeout_s=60)
    engine = begin()
    try:
        opened = await rank.ask(sending(0, "one"), timeout_s=20)
        with pytest.raises(LearnerError, match="still sends to one"):
            await rank.ask(sending(0, "two"), timeout_s=20)
        assert (await rank.ask(step_to(1), timeout_s=60)).ok  # the group waits for its engine meanwhile
        written = hf_folder.read(Path(saved.location))
        assert [name for part in opened.parts for name in part.names] == list(opened.parts[0].names)
        assert sorted(opened.parts[0].names) == sorted(written)
        raw = [tensor.flatten().view(torch.uint8) for tensor in written.values()]
        assert await asyncio.to_thread(said, engine) == "ready"
        tell(engine, opened, 1, 2, "one", sum(one.numel() for one in raw), "stay")
        assert await asyncio.to_thread(said, engine) == str(sum(int(one.long().sum()) for one in raw))
    finally:
        engine.kill()
        engine.communicate()


@needs_root
def test_what_a_full_disk_refuses_is_called_so_whatever_a_library_says(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, write, failures = Trainer(model, OptimConfig()), dcp.FileSystemWriter.write_data, list[Exception]()
    monkeypatch.setattr(dcp.FileSystemWriter, "write_data", lambda *told: writes(*told))

    def writes(*told: Any) -> Any:
        if failures:
            raise failures.pop()
        fill(folder)
        return write(*told)

    with small_disk(tmp_path / "small") as folder:
        for _ in ("as shards are written", "before any is"):
            with pytest.raises(DiskRefuses, match=r"No space left on device"):
                _written(folder / "0.1", trainer.save)
        (folder / "ballast").unlink()
        failures += [KeyError("k"), OSError(errno.ENOSPC, "No space left on device")]
        with pytest.raises(DiskRefuses, match=r"No space left on device"):
            _written(folder / "0.1", trainer.save)
        with pytest.raises(LearnerError, match=r"can't write .*0\.1: rank 0: KeyError\('k'\)"):
            _written(folder / "0.1", trainer.save)
        monkeypatch.undo()
        assert checkpoints.verify(folder / "0.1", _written(folder / "0.1", trainer.save)) is None
