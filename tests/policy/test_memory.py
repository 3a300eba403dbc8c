"""What is reckoned before a run is what there is; parameter counts are the published ones."""

import math
from pathlib import Path

import msgspec
import pytest
import torch

from actors.cluster.config import models
from policy import memory
from policy.architecture import read_architecture
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import LoraConfig, ParallelConfig
from policy.tensorfiles import expected

TOKENS = 256
MARGIN = 0.1  # of activations
ALONE = ParallelConfig()
SHAPES = Path(__file__).resolve().parents[2] / "deploy" / "shapes"
PUBLISHED = {
    "qwen2.5-0.5b": 0.49,
    "qwen2.5-1.5b": 1.54,
    "qwen3-1.7b": 1.7,
    "glm-4-9b-0414": 9.4,
    "qwen2.5-14b": 14.7,
}  # billions


@pytest.mark.parametrize("shape", PUBLISHED)
def test_parameter_counts_are_the_published_ones(shape: str) -> None:
    arch = read_architecture(SHAPES / shape)
    count = sum(math.prod(size) for size in expected(arch).values())
    assert count / 1e9 == pytest.approx(PUBLISHED[shape], rel=0.015)
    assert memory.parameters(arch, ALONE) == count
    assert memory.parameters(arch, ParallelConfig(tensor=2)) < count * 0.51
    odd = msgspec.structs.replace(arch, vocab=arch.vocab + 1)
    more = memory.parameters(odd, ParallelConfig(tensor=2)) - memory.parameters(arch, ParallelConfig(tensor=2))
    assert more == arch.hidden * (1 if arch.tied else 2)
    halves = memory.parameters(arch, ParallelConfig(tensor=2, pipeline=2))
    assert count / 4 < halves < count / 4 * 1.1 + arch.vocab * arch.hidden / 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [LoraConfig(), LoraConfig(rank=4)], ids=["whole", "lora"])
def test_what_lasts_is_reckoned_to_the_byte(dtype: str, lora: LoraConfig) -> None:
    optim = OptimConfig(dtype=dtype, lora=lora)
    trainer = Trainer(models.bundled(), optim)
    trainer.new_reference()
    trainer.cross_entropy_step([MicroBatch(samples=[PackedSample(ids=[1, 2, 3], response_len=1, weight=1.0)])], 1e-3)
    found = memory.plan(trainer.shape, optim, ALONE, token_budget=TOKENS, reference=True, device="cpu")
    held = {one.data_ptr(): one.nbytes for one in trainer.model.parameters()}
    assert sum(held.values()) == found.weights
    buffers = sum(buffer.grad_data.nbytes for buffer in trainer.updater.ddp.buffers)
    assert found.gradients == pytest.approx(buffers, rel=0.01)  # Megatron rounds up
    state = [one for of in trainer.updater._adam.optimizer.state.values() for one in of.values() if one.numel() > 1]
    main = [one for group in trainer.updater.optimizer.param_groups for one in group["params"]]
    mains = sum(one.nbytes for one in main) if dtype == "bfloat16" else 0
    assert sum(one.nbytes for one in state) + mains == found.optimizer
    on_gpu = memory.plan(trainer.shape, optim, ALONE, token_budget=TOKENS, reference=True, device="cuda")
    blank = [one for _, weight in trainer.updater.trained() for one in trainer.updater.blank(weight).values()]
    assert (sum(one.nbytes for one in blank), found.checkpoint) == (on_gpu.staged, mains)
    assert trainer.reference is not None
    assert sum(one.nbytes for one in trainer.reference.weights.values()) == found.reference


@pytest.mark.parametrize(("recompute", "dtype"), [("none", "float32"), ("none", "bfloat16"), ("selective", "float32")])
def test_activations_are_reckoned_within_a_margin(recompute: str, dtype: str) -> None:
    optim = OptimConfig(recompute=recompute, dtype=dtype)
    trainer = Trainer(models.bundled(), optim)
    own = {one.untyped_storage().data_ptr() for one in trainer.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (storage := tensor.untyped_storage()).data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    sample = PackedSample(ids=[1 + i % 90 for i in range(TOKENS)], response_len=TOKENS - 1, weight=1.0)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer._training._forward(trainer._training._inputs(MicroBatch(samples=[sample])))
    reckoned = TOKENS * memory.activations(trainer.shape, optim, ALONE) * (4 if dtype == "float32" else 2)
    again = TOKENS * 4 * 5 * trainer.shape.ffn if recompute == "selective" else 0  # exists in the backward pass only
    assert sum(storage.nbytes() for storage in kept.values()) == pytest.approx(reckoned - again, rel=MARGIN)


def test_parts_shrink_by_what_shrinks_them() -> None:
    arch = read_architecture(SHAPES / "qwen2.5-14b")
    bf16 = OptimConfig(dtype="bfloat16")

    def of(
        optim: OptimConfig = bf16, parallel: ParallelConfig = ALONE, tokens: int = 8192, *, reference: bool = False
    ) -> memory.MemoryPlan:
        return memory.plan(arch, optim, parallel, token_budget=tokens, reference=reference, device="cuda")

    assert of().total > 250 * memory.GIB
    assert of(parallel=ParallelConfig(data=2)).optimizer == of().optimizer // 2
    assert of(parallel=ParallelConfig(tensor=2)).gradients < 0.51 * of().gradients
    assert of(tokens=4096).activations == of().activations // 2
    full = of(OptimConfig(dtype="bfloat16", recompute="full"))
    selective = of(OptimConfig(dtype="bfloat16", recompute="selective"))
    assert 3 * full.activations < selective.activations < 0.7 * of().activations
    lora = of(OptimConfig(dtype="bfloat16", lora=LoraConfig(rank=16)))
    assert lora.optimizer + lora.gradients < 0.01 * (of().optimizer + of().gradients)
    assert "weights 27.5" in of().by_part()
    assert "reference" not in of().by_part()
    kept = of(reference=True)
    assert kept.total == of().total, "a GPU never holds a second model"
    assert kept.weights <= kept.pinned < 2 * kept.weights
    assert "; in the host's memory: reference 32.00, checkpoint 165.07" in kept.by_part()
    assert kept.host == kept.pinned + 12 * memory.parameters(arch, ALONE)
    shared = of(parallel=ParallelConfig(data=2))
    assert shared.staged == of().staged, "each data rank holds all of it for a while"
