"""Token terms of GRPO against values computed by hand."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from policy import plugins
from policy.advantage import group_advantages
from policy.errors import LearnerError
from policy.losses import LossTokens, TokenTerms, grpo_terms, k3
from policy.packing import Aggregation, group_weights
from policy.settings import Objective
from runtime.errors import ConfigError


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
    result, gradient = terms(ratio, advantage, Objective(clip_ratio_low=0.2, clip_ratio_high=0.3))
    assert float(result.loss.detach()) == pytest.approx(loss, rel=1e-5)
    assert float(result.ratio) == pytest.approx(ratio, rel=1e-5)
    assert bool(result.clipped) is clipped
    assert bool(result.dual_clipped) is (ratio == 5.0)
    assert gradient == pytest.approx(0.0 if clipped else -ratio * advantage, rel=1e-5, abs=1e-6)


def test_decoupled_policy_clips_against_the_proximal_policy() -> None:
    # pi / mu = 1.5 with pi_prox / mu = 1.25: rho = 1.2, correction 1.25.
    behaviour = torch.tensor([math.log(0.25)])
    proximal = behaviour + math.log(1.25)
    objective = Objective(importance_ratio="decoupled", clip_ratio_high=0.1, tis_cap=2.0)
    result, gradient = terms(1.5, 1.0, objective, proximal=proximal)
    assert float(result.loss.detach()) == pytest.approx(-1.25 * 1.1, rel=1e-5)
    assert gradient == 0.0


def test_decoupled_policy_recomputes_the_proximal_policy_and_caps_the_correction() -> None:
    objective = Objective(importance_ratio="decoupled", tis_cap=2.0)
    result, gradient = terms(1.5, 1.0, objective)
    assert float(result.ratio) == pytest.approx(1.0)
    assert float(result.loss.detach()) == pytest.approx(-1.5, rel=1e-5)
    assert gradient == pytest.approx(-1.5, rel=1e-5)
    result, gradient = terms(4.0, 1.0, objective)
    assert float(result.loss.detach()) == pytest.approx(-2.0, rel=1e-5)
    assert gradient == pytest.approx(-2.0, rel=1e-5)


def test_a_group_worked_out_by_hand() -> None:
    """One group, c = 2, eps = 0.2, beta = 0.1: two trajectories with steps of 1 and 2 tokens, and of 1 token.

    R = {1, 1, 0}: mean 2/3, population std sqrt(2)/3, so A = 1/sqrt(2) for the first two steps, -sqrt(2) for the last.
    mu = 1/4 for all; pi / mu = 1.1 | 1.5, 0.5 | 3. pi_ref / pi = 1 but for the last token, where it is 2.
    """
    advantages = group_advantages([[1.0, 1.0], [0.0]])
    assert advantages is not None
    (first, second), (last,) = advantages
    weights = group_weights([[1, 2, 1]], Aggregation.STEP_MEAN)[0]
    assert weights == pytest.approx([1 / 3, 1 / 6, 1 / 3])
    behaviour = torch.full((4,), math.log(0.25))
    logprobs = behaviour + torch.tensor([1.1, 1.5, 0.5, 3.0]).log()
    reference = logprobs + torch.tensor([1.0, 1.0, 1.0, 2.0]).log()
    found = grpo_terms(
        logprobs,
        behaviour,
        torch.tensor([first, second, second, last]),
        Objective(dual_clip=2.0, kl_coef=0.1),
        unit_logprobs=logprobs,
        reference=reference,
    )
    # Surrogates: 1.1 A; min(1.5, 1.2) A; 0.5 A; max(3 * -sqrt(2), 2 * -sqrt(2)). k3 of the last: 2 - 1 - ln 2.
    root = math.sqrt(2.0)
    terms_ = [-1.1 / root, -1.2 / root, -0.5 / root, 2.0 * root + 0.1 * (1.0 - math.log(2.0))]
    assert found.loss.tolist() == pytest.approx(terms_, rel=1e-5)
    assert found.clipped.tolist() == [False, True, False, True]
    assert found.dual_clipped.tolist() == [False, False, False, True]
    per_token = torch.tensor([weights[0], weights[1], weights[1], weights[2]])
    # (-1.1 - 1.7 / 2) / (3 root) + (2 root + 0.1 (1 - ln 2)) / 3 = -0.459619 + 0.942809 + 0.010228
    assert float((found.loss * per_token).sum()) == pytest.approx(0.493418, abs=1e-5)


@given(
    st.floats(-1000, 0), st.floats(-1000, 0), st.floats(-3, 3), st.sampled_from(["direct", "decoupled"]),
    st.none() | st.floats(-1000, 0),
)  # fmt: skip
def test_no_mismatch_makes_a_slope_beyond_the_documented_bound(
    now: float, then: float, advantage: float, policy: str, proximal: float | None
) -> None:
    objective = Objective(importance_ratio=policy, clip_ratio_high=0.3, dual_clip=3.0, tis_cap=2.0)
    logprobs = torch.tensor([now], requires_grad=True)
    anchor = None if proximal is None else torch.tensor([proximal])
    found = grpo_terms(logprobs, torch.tensor([then]), torch.tensor([advantage]), objective, proximal=anchor)
    found.loss.sum().backward()
    assert logprobs.grad is not None
    bound = 3.0 * abs(advantage) * (2.0 if policy == "decoupled" else 1.0)
    assert abs(float(logprobs.grad)) <= bound * (1 + 1e-5)
    assert torch.isfinite(found.loss).all()


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


def test_a_correction_that_changes_nothing_and_a_reference_without_its_half_are_no_errors() -> None:
    objective = Objective(tis_cap=1.0, kl_coef=0.1)
    for half in ({"unit_logprobs": torch.tensor([-1.0])}, {"reference": torch.tensor([-1.0])}):
        result, _ = terms(1.1, 1.0, objective, **half)
        assert (float(result.kl), float(result.loss.detach())) == (0.0, pytest.approx(-1.1))


MU = torch.tensor([0.25, 0.25, 0.5]).log()  # a sample of two tokens, and one of a single token
TWO = torch.tensor([2, 1])


def test_a_sequence_s_ratio_is_the_geometric_mean_of_its_tokens() -> None:
    """pi / mu = 2, 1/2 | 1.5: the first sample's is sqrt(1) = 1, the second's 1.5, clipped at 1.2 for A = 2."""
    logprobs = (MU + torch.tensor([2.0, 0.5, 1.5]).log()).requires_grad_()
    advantages = torch.tensor([1.0, 1.0, 2.0])
    found = grpo_terms(logprobs, MU, advantages, Objective(ratio="sequence"), lengths=TWO)
    assert found.ratio.tolist() == pytest.approx([1.0, 1.0, 1.5])
    assert found.loss.tolist() == pytest.approx([-1.0, -1.0, -2.4])
    assert found.clipped.tolist() == [False, False, True]
    found.loss.sum().backward()
    # Each of the two tokens' losses moves with half of each log-probability: -(1/2 + 1/2) * 1 for both.
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-1.0, -1.0, 0.0])


@pytest.mark.parametrize(
    ("policy", "mismatch", "expected"),
    [
        # pi_prox / mu = 4, 1/2 | 0.4, with C = 2; the first sample's geometric mean is sqrt(2), the second's 0.4.
        ("decoupled", "none", [1.0, 1.0, 1.0]),
        ("decoupled", "tis", [2.0, 0.5, 0.4]),
        ("decoupled", "token_mask", [0.0, 0.5, 0.0]),
        ("decoupled", "sequence_mask", [2**0.5, 2**0.5, 0.0]),
        ("direct", "none", [1.2, 0.5, 0.4]),  # the ratio itself, clipped above
        ("direct", "tis", [1.2, 0.5, 0.4]),
        ("direct", "token_mask", [0.0, 0.5, 0.0]),
        ("direct", "sequence_mask", [1.2, 0.5, 0.0]),
    ],
)
def test_what_engine_and_learner_disagree_on_is_weighed_or_left_out(
    policy: str, mismatch: str, expected: list[float]
) -> None:
    logprobs = MU + torch.tensor([4.0, 0.5, 0.4]).log()
    objective = Objective(importance_ratio=policy, mismatch=mismatch, tis_cap=2.0 + 1e-6)
    found = grpo_terms(logprobs, MU, torch.ones(3), objective, lengths=TWO)
    assert (-found.loss).tolist() == pytest.approx(expected, rel=1e-5)
    assert found.masked.tolist() == [mismatch.endswith("mask") and value == 0.0 for value in expected]


def test_an_entropy_bonus_pushes_likely_tokens_down_and_unlikely_ones_up() -> None:
    """0.1 (log pi + H) with H = 2: log pi of -1 has slope 0.1, of -3 slope -0.1."""
    logprobs = torch.tensor([-1.0, -3.0], requires_grad=True)
    found = grpo_terms(logprobs, logprobs.detach(), torch.zeros(2), Objective(entropy_coef=0.1, entropy=2.0))
    found.loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.1, -0.1])


def doubled(tokens: LossTokens) -> Tensor:
    """REINFORCE, twice."""
    return -2.0 * tokens.advantages * tokens.logprobs


def unbounded(tokens: LossTokens) -> Tensor:
    return tokens.logprobs / 0.0


def summed(tokens: LossTokens) -> Tensor:
    return tokens.logprobs.sum()


def broken(tokens: LossTokens) -> Tensor:
    raise KeyError(len(tokens.logprobs))


def test_a_loss_of_one_s_own_takes_the_surrogate_s_place() -> None:
    name = f"{__name__}:doubled"
    logprobs = torch.tensor([-1.0, -3.0], requires_grad=True)
    found = grpo_terms(logprobs, logprobs.detach(), torch.tensor([1.0, -1.0]), Objective(loss=name))
    assert found.loss.tolist() == [2.0, -6.0]
    found.loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [-2.0, 2.0]
    apart = torch.tensor([-1.0, -9.0])  # the engine's, of a token that the mask leaves out
    masked = grpo_terms(logprobs, apart, torch.ones(2), Objective(loss=name, mismatch="token_mask"))
    assert (masked.loss.tolist(), masked.masked.tolist()) == ([2.0, 0.0], [False, True])
    wrongs = (("unbounded", "not finite"), ("summed", "each of 2 tokens"), ("broken", "failed: KeyError: 2"))
    for wrong, said in wrongs:
        with pytest.raises(LearnerError, match=f"learner.rl.loss {__name__}:{wrong}.*{said}"):
            grpo_terms(logprobs, logprobs.detach(), torch.ones(2), Objective(loss=f"{__name__}:{wrong}"))


@pytest.mark.parametrize(
    ("name", "said"),
    [("math", "package.module:function"), ("no_such_package:f", "No module named"), ("math:sine", "no function sine")],
)
def test_a_function_that_is_not_there_is_refused_by_its_key(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^learner\.rl\.loss is '{name}': .*{said}"):
        plugins.load(name, plugins.LOSS)


@pytest.mark.parametrize(("module", "said"), [("1 / 0", "ZeroDivisionError"), ("exit(3)", "SystemExit: 3")])
def test_a_module_that_fails_or_ends_while_it_is_imported_is_refused_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    (tmp_path / "falls_over.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=rf"^learner\.rl\.reward is 'falls_over:f': .*{said}"):
        plugins.load("falls_over:f", plugins.REWARD)
