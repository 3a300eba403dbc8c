"""Steps on a tiny model: splits, objectives, checkpoints."""

import math
import random
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace

from policy.errors import LearnerError
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import (
    Aggregation,
    MicroBatch,
    PackedSample,
    pack,
    pack_cross_entropy,
)
from policy.settings import Objective
from runtime.errors import StoreError
from tests.policy import tiny_models
from tests.policy.tiny_models import gradient, rollouts

DIRECT = Objective(kl_coef=0.05)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("base") / "model", "qwen2")


def trainer_of(model: Path, **options: object) -> Trainer:
    return Trainer(model, OptimConfig(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_rests_between_steps_comes_back_and_can_be_saved_meanwhile(
    model: Path, tmp_path: Path, dtype: str
) -> None:
    """Nothing is moved on a CPU, where gradients are freed all the same."""
    figures, saved = [], []
    for rests in (False, True):
        trainer = Trainer(model, OptimConfig(dtype=dtype))  # type: ignore[arg-type]
        batches = pack(rollouts(trainer), 50)
        for step in range(3):
            figures.append(trainer.grpo_step(batches, 1e-3, Objective())["grad_norm"])
            if rests:
                trainer.updater.rest()
                assert all(buffer.grad_data.untyped_storage().nbytes() == 0 for buffer in trainer.updater.ddp.buffers)
                trainer.save(tmp_path / f"{dtype}{step}")
        saved.append(trainer.export(tmp_path / str(rests)))
    assert figures[:3] == figures[3:]
    assert saved[0] == saved[1]


def test_effective_samples_and_the_norm_are_those_of_ratios_and_gradient(model: Path) -> None:
    """Every other token's behaviour is a third of the policy's: (sum w)^2 / (n sum w^2) of w = 1 and w = 3."""
    trainer = trainer_of(model)
    samples = [
        replace(one, behaviour_logprobs=[v - math.log(3) * (n % 2) for n, v in enumerate(one.behaviour_logprobs)])
        for one in rollouts(trainer)
    ]
    threes = sum(one.response_len // 2 for one in samples)
    ones = sum(one.response_len for one in samples) - threes
    figures = trainer.grpo_step(pack(samples, 50), 0.0, Objective())
    worth = (ones + 3 * threes) ** 2 / ((ones + threes) * (ones + 9 * threes))
    assert figures["effective_samples"] == pytest.approx(worth, rel=1e-4)
    assert 0.6 < worth < 1.0
    clipped = trainer.grpo_step(pack(samples, 50), 0.0, Objective())  # whose gradient is left where it was reckoned
    before = clipped["grad_norm"]
    assert float(gradient(trainer).norm()) == pytest.approx(min(before, trainer.config.clip_grad), rel=1e-4)


def test_entropy_is_at_temperature_one_and_the_ratio_at_the_recorded_one(model: Path) -> None:
    trainer = trainer_of(model)
    trainer.new_reference()
    warm = rollouts(trainer, temperature=0.5)
    cold = [msgspec.structs.replace(s, temperature=1.0) for s in warm]
    at_half = trainer.grpo_step(pack(warm, 1000), 0.0, DIRECT)
    at_one = trainer.grpo_step(pack(cold, 1000), 0.0, DIRECT)
    assert at_half["mismatch_mean"] == pytest.approx(0.0, abs=1e-5)
    assert at_one["mismatch_mean"] > 0.01
    assert at_half["entropy"] == pytest.approx(at_one["entropy"])
    assert at_half["kl"] == pytest.approx(0.0, abs=1e-6)
    logits = tiny_models.logits(trainer, MicroBatch(samples=warm))
    probabilities = torch.cat(logits).softmax(-1)
    assert at_one["entropy"] == pytest.approx(float(-(probabilities * probabilities.log()).sum(-1).mean()), rel=1e-5)


@pytest.mark.slow
def test_kl_needs_a_reference_and_then_holds_the_policy_to_it(model: Path) -> None:
    trainer = trainer_of(model)
    samples = rollouts(trainer)
    with pytest.raises(LearnerError, match="reference"):
        trainer.grpo_step(pack(samples, 100), 1e-3, DIRECT)
    trainer.new_reference()
    for _ in range(3):
        figures = trainer.grpo_step(pack(samples, 100), 3e-3, DIRECT)
    assert figures["kl"] > 1e-5
    trainer.new_reference()
    assert trainer.grpo_step(pack(samples, 100), 0.0, DIRECT)["kl"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.slow
def test_the_proximal_policy_is_that_of_the_take(model: Path) -> None:
    """Later passes are held against the policy from before the first, not against the one before them."""
    settings = OptimConfig(weight_decay=0.0)
    objective = replace(DIRECT, kl_coef=0.0, importance_ratio="decoupled")
    together, apart = Trainer(model, settings), Trainer(model, settings)
    samples = rollouts(together)  # mu = pi_prox: decoupled is then what direct is
    figures = together.grpo_step(pack(samples, 100), 3e-3, objective, epochs=3)
    assert figures["optimizer_steps"] == 3
    assert figures["tokens"] == sum(s.response_len for s in samples)
    assert figures["mismatch_max"] == pytest.approx(0.0, abs=1e-5)
    assert figures["ratio_max"] > 1.01
    for _ in range(3):
        apart.grpo_step(pack(samples, 40), 3e-3, replace(objective, importance_ratio="direct"))
    probe = MicroBatch(samples=samples)
    for one, other in zip(together.logprobs(probe), apart.logprobs(probe), strict=True):
        assert one == pytest.approx(other, abs=2e-3)
    assert apart.grpo_step(pack(samples, 100), 0.0, objective)["ratio_max"] == pytest.approx(1.0)


def test_only_fresh_tokens_tell_how_well_sampler_and_learner_agree(model: Path) -> None:
    trainer = trainer_of(model)
    samples = rollouts(trainer)
    stale = [msgspec.structs.replace(s, behaviour_logprobs=[v - 1.0 for v in s.behaviour_logprobs]) for s in samples]
    fresh = [msgspec.structs.replace(s, fresh=True) for s in samples]
    figures = trainer.grpo_step(pack(stale[:2] + fresh[2:], 100), 0.0, Objective())
    assert figures["agreement_max"] < 1e-5
    assert figures["mismatch_max"] == pytest.approx(1.0, abs=1e-4)
    tokens = [s.response_len for s in samples]
    assert figures["fresh_fraction"] == pytest.approx(sum(tokens[2:]) / sum(tokens))
    assert figures["far_fraction"] == pytest.approx(sum(tokens[:2]) / sum(tokens))
    assert "agreement_max" not in trainer.grpo_step(pack(stale, 100), 0.0, Objective())


@pytest.mark.parametrize("policy", ["direct", "decoupled"])
def test_a_step_without_advantage_adds_nothing(model: Path, policy: str) -> None:
    """However far its tokens are from who drew them: loss and gradient are those of the others alone."""
    trainer = trainer_of(model, clip_grad=0.0)
    objective = Objective(importance_ratio=policy)
    samples = rollouts(trainer, noise=2.0)
    idle = [msgspec.structs.replace(s, advantage=-0.0) for s in samples[::2]]
    mixed = trainer.grpo_step(pack(samples[1::2] + idle, 60), 0.0, objective)
    expected = gradient(trainer)
    alone = trainer.grpo_step(pack(samples[1::2], 60), 0.0, objective)
    assert alone["loss"] == pytest.approx(mixed["loss"], rel=1e-6)
    assert alone["grad_norm"] == pytest.approx(mixed["grad_norm"], rel=1e-6)
    assert float((gradient(trainer) - expected).norm() / expected.norm()) < 1e-6
    trainer.grpo_step(pack(idle, 60), 0.0, objective)
    assert float(gradient(trainer).abs().max()) == 0.0


def test_cross_entropy_is_on_responses_with_each_sample_s_weight(model: Path) -> None:
    trainer = trainer_of(model)
    samples = [
        PackedSample(ids=[1, 2, 3, 4, 5, 6], response_len=2, weight=0.25),
        PackedSample(ids=[9, 8, 7, 6], response_len=3, weight=2.0),
    ]
    figures = trainer.cross_entropy_step([MicroBatch(samples=samples)], 0.0)
    logits = tiny_models.logits(trainer, MicroBatch(samples=samples))
    expected = right = 0.0
    for sample, rows in zip(samples, logits, strict=True):
        targets = torch.tensor(sample.ids[-sample.response_len :])
        expected += sample.weight * float(torch.nn.functional.cross_entropy(rows, targets, reduction="sum"))
        right += float((rows.argmax(-1) == targets).sum())
    assert figures["loss"] == pytest.approx(expected, rel=1e-5)
    assert figures["accuracy"] == pytest.approx(right / 5)
    assert figures["tokens"] == 5


def test_missing_log_probabilities_and_greedy_samples_are_refused(model: Path) -> None:
    trainer = trainer_of(model)
    samples = rollouts(trainer)
    for change in ({"behaviour_logprobs": []}, {"temperature": 0.0}):
        broken = [msgspec.structs.replace(samples[0], **change), *samples[1:]]
        with pytest.raises(LearnerError, match="log-probability"):
            trainer.grpo_step(pack(broken, 100), 1e-3, Objective())


def test_gradients_that_are_not_finite_change_nothing(model: Path, tmp_path: Path) -> None:
    trainer = trainer_of(model)
    before = trainer.export(tmp_path / "before")
    sample = PackedSample(ids=[1, 2, 3, 4], response_len=2, weight=math.inf)
    figures = trainer.cross_entropy_step([MicroBatch(samples=[sample])], 1e-3)
    assert figures["ok"] == 0.0
    assert trainer.export(tmp_path / "after") == before


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
def test_gradients_are_looked_at_without_a_copy_of_them(model: Path, value: float) -> None:
    updater = trainer_of(model).updater
    updater.zero_grad()
    (grads,) = (buffer.grad_data for buffer in updater.ddp.buffers)
    grads[-3:] = value
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        assert updater._finite() is math.isfinite(value)
    taken = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert 0 < max(taken) < 256 < grads.nbytes


def batches_of(seed: int, budget: int = 64) -> list[MicroBatch]:
    rng = random.Random(seed)
    sequences = [([rng.randrange(tiny_models.VOCAB) for _ in range(20)], [(12, 20)]) for _ in range(6)]
    return pack_cross_entropy(sequences, budget, Aggregation.TOKEN_MEAN)


@pytest.mark.slow
def test_cross_entropy_learns_and_evaluate_changes_nothing(model: Path) -> None:
    trainer = trainer_of(model)
    batches = batches_of(0)
    losses = [trainer.cross_entropy_step(batches, 1e-2)["loss"] for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]
    first = trainer.evaluate(batches)
    assert first == trainer.evaluate(batches)
    assert first["accuracy"] > 0.3
    assert trainer.cross_entropy_step(batches, 0.0)["loss"] == pytest.approx(first["loss"], rel=1e-5)


@pytest.mark.slow
def test_a_fresh_optimizer_forgets_momentum(model: Path, tmp_path: Path) -> None:
    used, new = trainer_of(model), trainer_of(model)
    for step in range(3):
        used.cross_entropy_step(batches_of(step), 1e-2)
    used.export(tmp_path / "now")
    new = Trainer(tmp_path / "now", OptimConfig())
    used.fresh_optimizer()
    for step in range(3):
        assert used.cross_entropy_step(batches_of(step), 1e-2)["loss"] == pytest.approx(
            new.cross_entropy_step(batches_of(step), 1e-2)["loss"], rel=1e-6
        )


@pytest.mark.slow
def test_a_resume_takes_the_configured_betas_and_refuses_other_numbers(model: Path, tmp_path: Path) -> None:
    trainer = Trainer(model, OptimConfig(betas=(0.9, 0.98)))
    trainer.cross_entropy_step(batches_of(0), 3e-3)
    trainer.save(tmp_path / "checkpoint")
    resumed = Trainer.resume(tmp_path / "checkpoint", OptimConfig(betas=(0.5, 0.6)))
    resumed.cross_entropy_step(batches_of(1), 3e-3)
    assert {tuple(group["betas"]) for group in resumed.updater.optimizer.param_groups} == {(0.5, 0.6)}
    with pytest.raises(StoreError, match=r"learner\.dtype float32, .* says learner\.dtype bfloat16"):
        Trainer.resume(tmp_path / "checkpoint", OptimConfig(dtype="bfloat16"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resume_gives_the_same_losses(model: Path, tmp_path: Path, dtype: str) -> None:
    config = OptimConfig(dtype=dtype)
    trainer = Trainer(model, config)
    samples = rollouts(trainer)

    def go_on(one: Trainer) -> list[float]:
        losses = [one.cross_entropy_step(batches_of(step), 3e-3)["loss"] for step in range(3)]
        return losses + [one.grpo_step(pack(samples, 60), 3e-3, DIRECT)["loss"] for _ in range(2)]

    trainer.cross_entropy_step(batches_of(9), 3e-3)
    trainer.new_reference()
    trainer.cross_entropy_step(batches_of(8), 3e-3)
    trainer.save(tmp_path / "checkpoint", "3.14")
    expected = go_on(trainer)
    resumed = Trainer.resume(tmp_path / "checkpoint", msgspec.structs.replace(config, seed=7))
    assert resumed.loaded_version == "3.14"
    assert go_on(resumed) == pytest.approx(expected, rel=1e-6)
    assert trainer.load(tmp_path / "checkpoint") == "3.14"  # in place as well
    assert go_on(trainer) == pytest.approx(expected, rel=1e-6)


def test_a_reference_that_is_not_wanted_is_not_read(model: Path, tmp_path: Path) -> None:
    trainer = trainer_of(model)
    trainer.new_reference()
    trainer.save(tmp_path / "with")
    resumed = Trainer.resume(tmp_path / "with", OptimConfig(), reference=False)
    assert resumed.reference is None
    resumed.save(tmp_path / "without")
    sizes = [sum(f.stat().st_size for f in (tmp_path / one).rglob("*.distcp")) for one in ("with", "without")]
    assert sizes[0] - sizes[1] > 0.9 * 4 * trainer.parameters
    trainer.load(tmp_path / "with", reference=False)
    assert trainer.reference is None


def test_a_checkpoint_without_its_marker_is_never_loaded(model: Path, tmp_path: Path) -> None:
    trainer = trainer_of(model)
    trainer.save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "complete.json").unlink()
    with pytest.raises(StoreError, match="not a complete checkpoint"):
        Trainer.resume(tmp_path / "checkpoint", OptimConfig())
    with pytest.raises(StoreError):
        trainer.load(tmp_path / "checkpoint")


def test_recomputed_activations_are_not_kept_and_change_nothing(model: Path) -> None:
    kept: dict[str, int] = {}
    gradients: dict[str, torch.Tensor] = {}
    for recompute in ("none", "selective", "full"):
        trainer = trainer_of(model, recompute=recompute)
        batch, kept[recompute] = pack(rollouts(trainer), 100), 0

        def count(tensor: torch.Tensor, recompute: str = recompute) -> torch.Tensor:
            kept[recompute] += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            trainer.updater.zero_grad()
            total = trainer._training._forward(trainer._training._inputs(batch[0])).square().sum()
        total.backward()
        gradients[recompute] = gradient(trainer)
    assert kept["full"] < kept["selective"] < kept["none"]
    torch.testing.assert_close(gradients["full"], gradients["none"])
    torch.testing.assert_close(gradients["selective"], gradients["none"])
