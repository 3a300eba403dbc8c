"""The average of weights: by hand, exact in bfloat16, kept by a checkpoint, and written next to the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Parameter

from policy import checkpoints, hf_folder
from policy.megatron.trainer import AveragedWeights, OptimConfig, Trainer
from policy.packing import Aggregation, pack_cross_entropy
from policy.settings import AVERAGED, LoraConfig
from tests.policy import tiny_models

BATCHES = pack_cross_entropy([([3, 1, 4, 1, 5, 9, 2, 6], [(4, 8)])], 64, Aggregation.TOKEN_MEAN)


@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=12), st.floats(0.01, 0.99))
def test_it_stays_among_what_the_weights_were(values: list[float], share: float) -> None:
    weight = Parameter(torch.tensor(values[:1]))
    average = AveragedWeights([("w", weight)])
    for value in values[1:]:
        weight.data.fill_(value)
        average.follow(share)
    (found,) = average.weights["w"].tolist()
    assert min(values) - 1e-5 <= found <= max(values) + 1e-5
    closed = share ** (len(values) - 1) * values[0] + sum(
        (1 - share) * share ** (len(values) - 1 - n) * value for n, value in enumerate(values) if n
    )
    assert found == pytest.approx(closed, abs=1e-5)


def test_steps_that_bfloat16_would_lose_are_followed_and_its_weights_are_back_to_the_bit() -> None:
    weight = Parameter(torch.tensor([1.0], dtype=torch.bfloat16))
    average = AveragedWeights([("w", weight)])
    weight.data.fill_(1.0 + 2**-7)  # the next number
    for _ in range(3):
        average.follow(0.9)
        with average.in_place():
            assert weight.dtype is torch.bfloat16
        assert weight.item() == 1.0 + 2**-7
    assert average.weights["w"].item() == pytest.approx(1 + 2**-7 * (1 - 0.9**3), rel=1e-7)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.write(tmp_path / "model", "qwen2", tied=True)


@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"lora": LoraConfig(rank=4)}], ids=str)
def test_a_resume_goes_on_with_it_and_an_export_holds_it(model: Path, tmp_path: Path, options: dict[str, str]) -> None:
    config = OptimConfig(**options)  # type: ignore[arg-type]
    trainer = Trainer(model, config)
    trainer.keep_average(True)
    assert trainer.averaged is not None
    for _ in range(2):
        trainer.cross_entropy_step(BATCHES, 0.02)
        trainer.averaged.follow(0.5)
    trainer.save(tmp_path / "0.2", "0.2")
    assert checkpoints.read_info(tmp_path / "0.2").has_average
    again = Trainer.resume(tmp_path / "0.2", config)
    assert again.averaged is not None
    kept, read = trainer.averaged.weights, again.averaged.weights
    assert all(torch.equal(kept[name], read[name]) for name in kept)
    assert any(not torch.equal(weight, kept[name].to(weight.dtype)) for name, weight in trainer.updater.trained())
    assert Trainer.resume(tmp_path / "0.2", config, average=False).averaged is None
    again.export(tmp_path / "out")
    own, averaged = (hf_folder.read(folder) for folder in (tmp_path / "out", tmp_path / "out" / AVERAGED))
    assert own.keys() == averaged.keys()
    served = Trainer(tmp_path / "out" / AVERAGED, OptimConfig(dtype=config.dtype))
    if not config.lora.rank:  # else adapters are averaged, and merged
        for name, weight in served.model.named_parameters():
            assert torch.equal(weight, kept[name].to(weight.dtype))
    assert any(not torch.equal(own[name], averaged[name]) for name in own)


def test_without_it_neither_a_checkpoint_nor_an_export_says_anything_of_it(model: Path, tmp_path: Path) -> None:
    trainer = Trainer(model, OptimConfig())
    trainer.keep_average(True)
    trainer.keep_average(False)
    trainer.save(tmp_path / "0.0", "0.0")
    assert not checkpoints.read_info(tmp_path / "0.0").has_average
    assert Trainer.resume(tmp_path / "0.0", OptimConfig()).averaged is None
    trainer.export(tmp_path / "out")
    assert not (tmp_path / "out" / AVERAGED).exists()
