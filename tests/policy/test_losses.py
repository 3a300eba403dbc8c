"""Token terms of GRPO against values computed by hand."""

import math

import pytest
import torch
from torch import Tensor

from policy.losses import Objective, TokenTerms, grpo_terms, k3


def terms(ratio: float, advantage: float, objective: Objective, **extra: Tensor) -> tuple[TokenTerms, float]:
    """The terms of one token with pi / mu = ratio, and d loss / d log pi."""
    behaviour = torch.tensor([math.log(0.25)])
    logprobs = (behaviour + math.log(ratio)).requires_grad_()
    result = grpo_terms(logprobs, behaviour, torch.tensor([advantage]), objective, **extra)
    result.loss.sum().backward()
    assert logprobs.grad is not None
    return result, float(logprobs.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.1, 2.0, -2.2, False),
        (1.5, 2.0, -2.6, True),  # min(3.0, 1.3 * 2)
        (0.5, 2.0, -1.0, False),  # a good token that became unlikely still pulls
        (0.5, -2.0, 1.6, True),  # min(-1.0, 0.8 * -2)
        (1.5, -2.0, 3.0, False),
        (5.0, -2.0, 6.0, True),  # dual clip: at least 3 * -2
    ],
)
def test_direct_policy(ratio: float, advantage: float, loss: float, *, clipped: bool) -> None:
    result, gradient = terms(ratio, advantage, Objective(clip_low=0.2, clip_high=0.3))
    assert float(result.loss.detach()) == pytest.approx(loss, rel=1e-5)
    assert float(result.ratio) == pytest.approx(ratio, rel=1e-5)
    assert bool(result.clipped) is clipped
    assert gradient == pytest.approx(0.0 if clipped else -ratio * advantage, rel=1e-5, abs=1e-6)


def test_decoupled_policy_clips_against_the_proximal_policy() -> None:
    # pi / mu = 1.5 with pi_prox / mu = 1.25: rho = 1.2, correction 1.25.
    behaviour = torch.tensor([math.log(0.25)])
    proximal = behaviour + math.log(1.25)
    objective = Objective(policy="decoupled", clip_high=0.1, mismatch_cap=2.0)
    result, gradient = terms(1.5, 1.0, objective, proximal=proximal)
    assert float(result.loss.detach()) == pytest.approx(-1.25 * 1.1, rel=1e-5)
    assert gradient == 0.0


def test_decoupled_policy_recomputes_the_proximal_policy_and_caps_the_correction() -> None:
    objective = Objective(policy="decoupled", mismatch_cap=2.0)
    result, gradient = terms(1.5, 1.0, objective)
    assert float(result.ratio) == pytest.approx(1.0)
    assert float(result.loss.detach()) == pytest.approx(-1.5, rel=1e-5)
    assert gradient == pytest.approx(-1.5, rel=1e-5)
    result, gradient = terms(4.0, 1.0, objective)
    assert float(result.loss.detach()) == pytest.approx(-2.0, rel=1e-5)
    assert gradient == pytest.approx(-2.0, rel=1e-5)


def test_kl_is_k3_at_temperature_one() -> None:
    # pi = 0.5, pi_ref = 0.25: r = 1/2, k3 = 1/2 - 1 - ln(1/2).
    unit = torch.tensor([math.log(0.5)], requires_grad=True)
    reference = torch.tensor([math.log(0.25)])
    expected = 0.5 - 1.0 + math.log(2.0)
    assert float(k3(unit, reference).detach()) == pytest.approx(expected, rel=1e-5)
    result, _ = terms(1.0, 0.5, Objective(kl_coef=0.1), unit_logprobs=unit, reference=reference)
    assert float(result.kl) == pytest.approx(expected, rel=1e-5)
    assert float(result.loss.detach()) == pytest.approx(-0.5 + 0.1 * expected, rel=1e-5)
    assert unit.grad is not None
    assert float(unit.grad) == pytest.approx(0.1 * (1.0 - 0.5), rel=1e-5)  # d k3 / d log pi = 1 - r


def test_far_out_ratios_stay_finite() -> None:
    for sign in (1.0, -1.0):
        result = grpo_terms(torch.tensor([0.0]), torch.tensor([-1000.0]), torch.tensor([sign]), Objective(kl_coef=0.1))
        assert torch.isfinite(result.loss).all()


@pytest.mark.parametrize("wrong", [{"policy": "other"}, {"dual_clip": 1.0}, {"mismatch_cap": 0.5}, {"clip_low": 0.0}])
def test_settings_without_meaning_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Objective(**wrong)  # type: ignore[arg-type]
