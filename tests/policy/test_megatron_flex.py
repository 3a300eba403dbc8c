"""Flex attention over a packed sequence gives what attention by calls gives, and a step waits for no GPU's inputs."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.nn.attention import flex_attention
from torch.utils._python_dispatch import TorchDispatchMode

from policy.megatron import flex
from policy.megatron.layers import PackedInputs, segments, sequences, shared
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import Objective, ParallelConfig
from runtime.errors import ConfigError
from tests.policy import tiny_models
from tests.policy.tiny_models import gradient

CPU = torch.device("cpu")


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's own reckoning of flex attention on a CPU, with gradients: it has no kernel for them there."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    flex.kernel.cache_clear()
    yield
    flex.kernel.cache_clear()


def samples(count: int, prompts: tuple[int, ...], response: int, seed: int = 5) -> list[PackedSample]:
    rng = random.Random(seed)
    drawn = [[rng.randrange(tiny_models.VOCAB) for _ in range(length)] for length in prompts]
    lengths = [rng.randint(1, response) for _ in range(count)]
    return [
        PackedSample(
            ids=drawn[number % len(drawn)] + [rng.randrange(tiny_models.VOCAB) for _ in range(length)],
            response_len=length,
            weight=1 / sum(lengths),
            advantage=(-1.0) ** number,
            behaviour_logprobs=[-4.0 - rng.random() for _ in range(length)],
        )
        for number, length in enumerate(lengths)
    ]


def flexible(trainer: Trainer) -> None:
    trainer.config = msgspec.structs.replace(trainer.config, attention="flex")
    trainer._training = trainer._runner(trainer.updater.ddp)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen2", "qwen3"])
def test_loss_and_gradient_are_those_of_attention_by_calls(tmp_path: Path, dense: None, model: str) -> None:
    trainer = Trainer(tiny_models.write(tmp_path / "model", model), OptimConfig(clip_grad=0.0))
    batches = [
        MicroBatch(samples=samples(9, (150, 40), 60) + samples(3, (30, 31, 32), 9, seed=2)),  # siblings and others
        MicroBatch(samples=samples(4, (12,), 150, seed=3)),
        MicroBatch(samples=samples(1, (20,), 5, seed=4)),  # alone: one call in either case
    ]
    expected = trainer.grpo_step(batches, 0.0, Objective())
    before = gradient(trainer)
    flexible(trainer)
    calls = []
    attend = flex.attend
    flex.attend = lambda *args: calls.append(args[0].size(0)) or attend(*args)  # type: ignore[assignment,func-returns-value]
    try:
        figures = trainer.grpo_step(batches, 0.0, Objective())
    finally:
        flex.attend = attend
    assert len(calls) == 2 * trainer.shape.layers
    assert all(tokens % flex.BLOCK == 0 for tokens in calls)
    off = gradient(trainer) - before
    assert float(off.norm() / before.norm()) < 1e-5
    assert float(off.abs().max() / before.abs().max()) < 1e-5
    for name in expected.keys() - {name for name in expected if name.endswith("_s")}:
        assert figures[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-6), name


def test_blocks_are_those_of_the_mask_of_tokens() -> None:
    """Of random packings, each pair of a query and a key lies in a block that says so."""
    rng = random.Random(3)
    missed, whole = 0, 0
    for _ in range(30):
        parts = sequences([rng.choice([3, 64, 130]) for _ in range(rng.randint(0, 4))])
        parts += [
            shared(rng.randint(1, 400), [rng.randint(1, 150) for _ in range(rng.randint(2, 6))], CPU, 0)
            for _ in range(rng.randint(1, 2))
        ]
        parts += sequences([-sum(part.tokens for part in parts) % flex.BLOCK or flex.BLOCK])
        blocks = flex.visible(list(segments(parts)), CPU)
        tokens = sum(part.tokens for part in parts)
        place = torch.arange(tokens)
        seen = blocks.mask_mod(place.new_zeros(1), place.new_zeros(1), place[:, None], place[None])
        tiles = seen.unflatten(1, (-1, flex.BLOCK)).unflatten(0, (-1, flex.BLOCK)).transpose(1, 2)
        some, every = tiles.flatten(2).any(-1), tiles.flatten(2).all(-1)
        full = _listed(blocks.full_kv_num_blocks, blocks.full_kv_indices)
        assert _listed(blocks.kv_num_blocks, blocks.kv_indices).equal(some & ~full)
        assert not (full & ~every).any()
        missed += int((every & ~full).sum())  # of a prompt's end and the response behind it: looked at by token
        whole += int(every.sum())
        for start, end, prompt, prompt_end in segments(parts):
            row = torch.zeros(tokens, dtype=torch.bool)
            row[prompt:prompt_end] = True
            for query in (start, end - 1):
                row[start : query + 1] = True
                assert seen[query].equal(row)
    assert missed < 0.2 * whole


def _listed(counts: Any, indices: Any) -> torch.Tensor:
    table = torch.zeros(indices.shape[2:], dtype=torch.bool)
    for row, (count, places) in enumerate(zip(counts[0, 0], indices[0, 0], strict=True)):
        table[row, places[:count].long()] = True
    return table


def test_it_is_refused_by_name_where_no_gpu_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="attention is flex"):
        Trainer(tiny_models.write(tmp_path / "model"), OptimConfig(attention="flex"), parallel=ParallelConfig())


class Moves(TorchDispatchMode):
    """What goes from the host to another device, and whether the program waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and torch.device(kwargs.get("device", "cpu")).type != "cpu":
            self.waited.append(not kwargs.get("non_blocking", False))
        return func(*args, **kwargs)


@pytest.mark.parametrize("with_blocks", [False, True])
def test_inputs_go_to_a_gpu_without_waiting_for_it(with_blocks: bool) -> None:
    batch = MicroBatch(samples=samples(6, (20, 9), 8))
    with Moves() as moves:
        PackedInputs(batch, torch.device("meta"), flex.BLOCK, flexible=with_blocks)
    assert len(moves.waited) >= 7
    assert not any(moves.waited)


@pytest.mark.slow
@pytest.mark.parametrize(("kl", "epochs", "built"), [(0.0, 1, 2), (0.1, 1, 2), (0.1, 3, 2), (0.0, 2, 2)])
def test_a_steps_inputs_are_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kl: float, epochs: int, built: int
) -> None:
    trainer = Trainer(tiny_models.write(tmp_path / "model"), OptimConfig())
    trainer.new_reference()
    made = []
    monkeypatch.setattr(
        "policy.megatron.model.PackedInputs", lambda *args, **more: made.append(args) or PackedInputs(*args, **more)
    )
    batches = [MicroBatch(samples=samples(2, (9,), 4, seed=seed)) for seed in (1, 2)]
    trainer.grpo_step(batches, 1e-4, Objective(kl_coef=kl), epochs)
    assert len(made) == built
