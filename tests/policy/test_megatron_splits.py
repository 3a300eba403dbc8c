"""One batch, split into micro-batches in every way there is, gives one gradient."""

import math
import random
from collections.abc import Iterator

import msgspec
import pytest

from policy.megatron import layers
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import Aggregation, MicroBatch, PackedSample
from policy.settings import Objective
from tests.policy import tiny_models
from tests.policy.tiny_models import gradient, rollouts

TOLERANCE = 1e-5
GROUPS = [[1, 7, 3], [12]]  # response lengths; prompts are as unequal


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    model = tiny_models.write(tmp_path_factory.mktemp("splits") / "model", "qwen2")
    made = Trainer(model, OptimConfig(clip_grad=0.0, weight_decay=0.0))
    made.new_reference()
    # Away from the reference, so that the KL term pulls.
    made.cross_entropy_step([MicroBatch(samples=[PackedSample(ids=[5, 6, 7, 8], response_len=3, weight=0.3)])], 1e-3)
    return made


def drawn(trainer: Trainer, aggregation: Aggregation) -> list[PackedSample]:
    """Two groups, some tokens far from the policy that drew them, at a temperature of its own."""
    return rollouts(trainer, GROUPS, aggregation, noise=1.5, temperature=0.8)


def splits(samples: list[PackedSample]) -> Iterator[list[MicroBatch]]:
    """Every way to share the samples out: all set partitions, 15 of four."""

    def parts(rest: list[PackedSample]) -> Iterator[list[list[PackedSample]]]:
        if not rest:
            yield []
            return
        for smaller in parts(rest[1:]):
            for k in range(len(smaller)):
                yield [*smaller[:k], [rest[0], *smaller[k]], *smaller[k + 1 :]]
            yield [[rest[0]], *smaller]

    for partition in parts(samples):
        yield [MicroBatch(samples=part) for part in partition]


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_every_split_gives_the_same_gradient(trainer: Trainer, aggregation: Aggregation) -> None:
    policy = "decoupled" if aggregation is Aggregation.STEP_MEAN else "direct"
    objective = Objective(kl_coef=0.5, dual_clip=1.5, tis_cap=1.5, importance_ratio=policy)
    samples = drawn(trainer, aggregation)
    whole = trainer.grpo_step([MicroBatch(samples=samples)], 0.0, objective)
    expected = gradient(trainer)
    assert whole["kl"] > 1e-6
    assert whole["far_fraction"] > 0.2
    if policy == "direct":
        assert whole["dual_clip_fraction"] > 0
    tried = 0
    for batches in splits(samples):
        tried += 1
        figures = trainer.grpo_step(batches, 0.0, objective)
        off = gradient(trainer) - expected
        assert float(off.norm() / expected.norm()) < TOLERANCE
        assert float(off.abs().max() / expected.abs().max()) < TOLERANCE
        for key in sorted(whole.keys() - {name for name in whole if name.endswith("_s")}):
            assert figures[key] == pytest.approx(whole[key], rel=1e-4, abs=1e-6), key
    assert tried == 15


@pytest.mark.slow
@pytest.mark.parametrize("masked_most", [layers.MASKED_MOST, 0], ids=["one mask", "one by one"])
def test_a_prompt_that_samples_share_is_computed_once_and_changes_nothing(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, masked_most: int
) -> None:
    """Two responses to each of two prompts: alone, and in every split, one gradient."""
    monkeypatch.setattr(layers, "MASKED_MOST", masked_most)
    rng = random.Random(7)
    prompts = [[rng.randrange(tiny_models.VOCAB) for _ in range(n)] for n in (17, 9)]
    responses = [(prompts[0], 4), (prompts[1], 1), (prompts[0], 1), (prompts[1], 6)]
    samples = [
        PackedSample(
            ids=prompt + [rng.randrange(tiny_models.VOCAB) for _ in range(length)],
            response_len=length,
            weight=0.03 * (k + 1),
            advantage=(-1.0) ** k,
            temperature=0.8,
        )
        for k, (prompt, length) in enumerate(responses)
    ]
    alone = [trainer.logprobs(MicroBatch(samples=[sample]))[0] for sample in samples]
    samples = [
        msgspec.structs.replace(sample, behaviour_logprobs=[value + rng.uniform(-1.5, 1.5) for value in values])
        for sample, values in zip(samples, alone, strict=True)
    ]
    for found, expected in zip(trainer.logprobs(MicroBatch(samples=samples)), alone, strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    objective = Objective(kl_coef=0.5, dual_clip=1.5, tis_cap=1.5)
    apart = trainer.grpo_step([MicroBatch(samples=[sample]) for sample in samples], 0.0, objective)
    expected_gradient = gradient(trainer)
    for batches in splits(samples):
        figures = trainer.grpo_step(batches, 0.0, objective)
        assert float((gradient(trainer) - expected_gradient).norm() / expected_gradient.norm()) < TOLERANCE
        for name in ("loss", "entropy", "kl", "clip_fraction", "mismatch_mean", "tokens"):
            assert figures[name] == pytest.approx(apart[name], rel=1e-4, abs=1e-6), name
    packed = trainer.grpo_step([MicroBatch(samples=samples)], 0.0, objective)["packed_tokens"]
    assert packed == 17 + 9 + sum(length for _, length in responses)


@pytest.mark.slow
def test_rehearsal_adds_its_gradient_to_that_of_the_phase(trainer: Trainer) -> None:
    rng = random.Random(5)
    exercises = [
        PackedSample(ids=[rng.randrange(tiny_models.VOCAB) for _ in range(20)], response_len=4, weight=0.02 * (k + 1))
        for k in range(3)
    ]
    samples, objective = drawn(trainer, Aggregation.TOKEN_MEAN), Objective(kl_coef=0.1)
    alone = trainer.grpo_step([MicroBatch(samples=samples)], 0.0, objective)
    expected = gradient(trainer)
    trainer.cross_entropy_step([MicroBatch(samples=exercises)], 0.0)
    expected += gradient(trainer)
    for batches in splits(exercises):
        figures = trainer.grpo_step([MicroBatch(samples=samples)], 0.0, objective, rehearsal=[batches])
        assert float((gradient(trainer) - expected).norm() / expected.norm()) < TOLERANCE
        assert figures["rehearsal_loss"] > 0
        for name in ("loss", "entropy", "kl", "tokens", "packed_tokens"):
            assert figures[name] == pytest.approx(alone[name], rel=1e-5), name


def test_every_epoch_rehearses_its_own_exercises(trainer: Trainer) -> None:
    rng = random.Random(6)
    first, second = (
        [
            MicroBatch(
                samples=[
                    PackedSample(ids=[rng.randrange(tiny_models.VOCAB) for _ in range(20)], response_len=n, weight=0.1)
                ]
            )
        ]
        for n in (3, 5)
    )
    taught = [MicroBatch(samples=drawn(trainer, Aggregation.TOKEN_MEAN))]
    figures = trainer.grpo_step(taught, 0.0, Objective(), 2, [first, second])
    assert figures["optimizer_steps"] == 2
    last = gradient(trainer)
    once = trainer.grpo_step(taught, 0.0, Objective(), 1, [second])
    assert float((gradient(trainer) - last).norm() / last.norm()) < TOLERANCE, "the second epoch's, with a rate of 0"
    other = trainer.grpo_step(taught, 0.0, Objective(), 1, [first])
    # Figures are means over the tokens of both: 3 and 5.
    mean = (3 * other["rehearsal_loss"] + 5 * once["rehearsal_loss"]) / 8
    assert figures["rehearsal_loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("policy", ["direct", "decoupled"])
def test_the_loss_is_the_sum_worked_out_token_by_token(trainer: Trainer, policy: str) -> None:
    """In plain Python, from log-probabilities alone: clip, dual clip, cap, k3 and denominators of two groups."""
    samples = drawn(trainer, Aggregation.STEP_MEAN)
    figures = trainer.grpo_step(
        [MicroBatch(samples=samples)], 0.0, Objective(importance_ratio=policy, kl_coef=0.5, dual_clip=1.5, tis_cap=1.5)
    )
    groups = [samples[: len(GROUPS[0])], samples[len(GROUPS[0]) :]]
    at_one = [msgspec.structs.replace(s, temperature=1.0) for s in samples]
    unit = iter(trainer.logprobs(MicroBatch(samples=at_one)))
    assert trainer.reference is not None
    with trainer.reference.in_place():
        reference = iter(trainer.logprobs(MicroBatch(samples=at_one)))
    now = iter(trainer.logprobs(MicroBatch(samples=samples)))
    objective = kl = 0.0
    for group in groups:
        for sample in group:
            total = 0.0
            for own, then, one, ref in zip(
                next(now), sample.behaviour_logprobs, next(unit), next(reference), strict=True
            ):
                far, a = math.exp(own - then), sample.advantage
                rho, weight = (far, 1.0) if policy == "direct" else (1.0, min(far, 1.5))
                term = min(rho * a, min(max(rho, 0.8), 1.2) * a)
                term = max(term, 1.5 * a) if a < 0 else term
                k3 = math.exp(ref - one) - 1.0 - (ref - one)
                total += weight * term - 0.5 * k3
                kl += k3 / sum(map(sum, GROUPS))
            objective += total / sample.response_len / len(group) / len(groups)
    assert figures["loss"] == pytest.approx(-objective, rel=1e-4)
    assert figures["kl"] == pytest.approx(kl, rel=1e-3)
