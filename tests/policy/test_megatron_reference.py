"""Ten training steps give the losses that an independent script for Megatron-core recorded, from the same weights."""

from pathlib import Path

import pytest

from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import Aggregation, pack_cross_entropy
from tests.policy import tiny_models

LENGTHS = [20, 33, 11]


# style -> (learning rate, loss, gradient norm) of each step
RECORDED: dict[str, list[tuple[float, float, float]]] = {
    "qwen2": [
        (0.0, 4.63701296, 1.80248142),
        (0.0015, 4.63701296, 1.80248142),
        (0.003, 4.42070866, 1.51705983),
        (0.00299923, 4.12728405, 1.35043981),
        (0.00299692, 3.91703153, 1.32406485),
        (0.00299307, 3.73517704, 1.28388093),
        (0.00298769, 3.56483817, 1.27807606),
        (0.00298077, 3.39954329, 1.21979048),
        (0.00297234, 3.24185777, 1.21113575),
        (0.00296239, 3.087744, 1.2957995),
    ],
    "qwen3": [
        (0.0, 4.65194035, 2.62559394),
        (0.0015, 4.65194035, 2.62559394),
        (0.003, 4.27501822, 2.32498428),
        (0.00299923, 3.91144323, 2.32219725),
        (0.00299692, 3.64311767, 2.09721066),
        (0.00299307, 3.4015677, 1.781337),
        (0.00298769, 3.18929815, 1.7287512),
        (0.00298077, 2.98316741, 1.68528008),
        (0.00297234, 2.78098011, 1.58436988),
        (0.00296239, 2.59493375, 1.45142207),
    ],
}


TIED = {"qwen2": True, "qwen3": False}


@pytest.mark.slow
@pytest.mark.parametrize("style", RECORDED)
def test_ten_steps_equal_those_of_an_independent_script(tmp_path: Path, style: str) -> None:
    expected = RECORDED[style]
    folder = tiny_models.write(tmp_path / "model", style, tied=TIED[style])
    trainer = Trainer(folder, OptimConfig(betas=(0.9, 0.95), weight_decay=0.01, clip_grad=1.0))
    ids = [(5 * i * i + 3 * i) % tiny_models.VOCAB for i in range(sum(LENGTHS))]
    sequences, start = [], 0
    for length in LENGTHS:
        sequences.append((ids[start : start + length], [(1, length)]))
        start += length
    batches = pack_cross_entropy(sequences, 40, Aggregation.TOKEN_MEAN)
    assert len(batches) > 1
    ours = []
    for lr, _, _ in expected:
        figures = trainer.cross_entropy_step(batches, lr)
        ours.append((lr, figures["loss"], figures["grad_norm"]))
    assert [loss for _, loss, _ in ours] == pytest.approx([loss for _, loss, _ in expected], rel=2e-5)
    assert [norm for _, _, norm in ours] == pytest.approx([norm for _, _, norm in expected], rel=1e-3)
    assert expected[-1][1] < 0.9 * expected[0][1]
