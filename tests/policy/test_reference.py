"""The reference takes the policy's place and leaves it: what it computes is what a model of its own would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from policy.megatron import trainer
from policy.megatron.model import PolicyModel
from policy.megatron.trainer import OptimConfig, Trainer, _exchange
from policy.packing import PackedSample, pack
from policy.settings import LoraConfig, Objective
from tests.policy import tiny_models

KL = Objective(kl_coef=0.3)
BATCHES = pack(
    [
        PackedSample(
            ids=[5, 9, 33, 60, 7, 7, 2, 41, k],
            response_len=3 + k,
            weight=0.1,
            advantage=1.0 - k,
            behaviour_logprobs=[-4.5] * (3 + k),
        )
        for k in range(4)
    ],
    20,
)


def taught(tmp_path: Path, style: str = "qwen2", *, tied: bool = True, **options: object) -> tuple[Trainer, Trainer]:
    """A trainer that has moved on since its reference was set, and another one that has stayed there."""
    model = tiny_models.write(tmp_path / "model", style, tied=tied)
    moved, stayed = (Trainer(model, OptimConfig(**options)) for _ in range(2))  # type: ignore[arg-type]
    for each in (moved, stayed):
        each.cross_entropy_step(BATCHES, 0.02)
    moved.new_reference()
    moved.cross_entropy_step(BATCHES, 0.02)
    return moved, stayed


def held(model: PolicyModel) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def gradient(trainer: Trainer) -> list[Tensor]:
    return [buffer.grad_data.clone() for buffer in trainer.updater.ddp.buffers]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "tied", "options"),
    [
        ("qwen2", True, {}),
        ("qwen3", False, {"dtype": "bfloat16"}),
        ("glm4", True, {"recompute": "full"}),
        ("qwen2", True, {"lora": LoraConfig(rank=3)}),
    ],
    ids=["tied", "untied-bf16", "recomputed", "lora"],
)
def test_a_step_is_to_the_bit_that_against_a_model_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str, tied: bool, options: dict[str, object]
) -> None:
    moved, stayed = taught(tmp_path, style, tied=tied, **options)
    before = held(moved.model)
    figures = moved.grpo_step(BATCHES, 0.0, KL)
    grads = gradient(moved)
    assert len(BATCHES) > 1
    assert figures["kl"] > 1e-4
    assert same(held(moved.model), before)
    assert moved.reference is not None
    assert same(list(moved.reference.weights.values()), [parameter for _, parameter in stayed.updater.trained()])

    def apart(batches: object, _: object) -> list[Tensor]:
        assert batches == BATCHES
        return stayed._runner(stayed.model).read(BATCHES, lambda inputs, rows: rows.scores(inputs.targets).unit)

    monkeypatch.setattr(moved, "_reference_logprobs", apart)
    again = moved.grpo_step(BATCHES, 0.0, KL)
    assert same(gradient(moved), grads)
    assert {k: v for k, v in figures.items() if k[-2:] != "_s"} == {k: v for k, v in again.items() if k[-2:] != "_s"}


@pytest.mark.parametrize("failing", ["the pass", "the way in"])
def test_weights_come_back_to_the_bit_where_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    moved, stayed = taught(tmp_path)
    before, exchange, left = held(moved.model), _exchange, [3]

    def until(weight: Tensor, kept: Tensor) -> None:
        left[0] -= 1
        if failing == "the way in" and left[0] == 0:
            raise RuntimeError("out of memory")
        exchange(weight, kept)

    monkeypatch.setattr(trainer, "_exchange", until)
    if failing == "the pass":
        monkeypatch.setattr(moved.model, "rows", lambda _: torch.ones(1) @ torch.ones(2))
    with pytest.raises(RuntimeError):
        moved.grpo_step(BATCHES, 0.02, KL)
    assert left[0] < 0
    assert same(held(moved.model), before)
    assert moved.reference is not None
    assert same(list(moved.reference.weights.values()), held(stayed.model))
