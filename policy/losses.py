"""Token terms of step-level GRPO.

The loss is a weighted sum over tokens, and the weights come with the samples. So the sum over micro-batches and ranks
is the batch's loss. KL is at temperature 1, the ratio and the mismatch at the temperature that the token was drawn at.

The policy term's slope in log pi is bounded, however far a token's policy is from the policy that drew it. The bound is
max(1 + clip_ratio_high, c) * |A| with `direct`, and C times that with `decoupled`. So no token has to be thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0  # its exp is finite in fp32, and any clip setting cuts a ratio that far out


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Clipping and regularisation of one RL step. Raises ValueError for a setting without meaning."""

    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.2
    dual_clip: float = 3.0
    kl_coef: float = 0.0
    importance_ratio: str = "direct"  # or "decoupled"
    tis_cap: float = 2.0

    def __post_init__(self) -> None:
        if self.importance_ratio not in {"direct", "decoupled"}:
            raise ValueError(f"importance_ratio is 'direct' or 'decoupled', not {self.importance_ratio!r}")
        if self.dual_clip <= 1.0 or self.tis_cap < 1.0 or min(self.clip_ratio_low, self.clip_ratio_high) <= 0.0:
            raise ValueError(f"dual_clip exceeds 1, clips exceed 0, tis_cap is at least 1: {self}")


@dataclass(frozen=True)
class TokenTerms:
    """Per-token terms [r]; only `loss` carries a gradient."""

    loss: Tensor
    ratio: Tensor  # pi / mu (direct) or pi / pi_prox (decoupled)
    clipped: Tensor  # bool: the policy term is on a flat part
    dual_clipped: Tensor  # bool: on the flat part that the dual clip adds
    kl: Tensor  # k3 against the reference; 0 without one


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Difference of log-probabilities, bounded so that its exp is finite."""
    return (numerator - denominator).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Schulman's low-variance, non-negative estimate of KL(pi || pi_ref): r - 1 - log r with r = pi_ref / pi."""
    delta = log_ratio(reference, logprobs)
    return delta.exp() - 1.0 - delta


def grpo_terms(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    objective: Objective,
    *,
    proximal: Tensor | None = None,
    unit_logprobs: Tensor | None = None,
    reference: Tensor | None = None,
) -> TokenTerms:
    """Loss -(clipped surrogate) + beta * k3 of every token; all arguments are [r].

    `logprobs` (with gradient) and `behaviour` are at the recorded temperature, `unit_logprobs` (with gradient) and
    `reference` at temperature 1. `direct`: rho = pi / mu. `decoupled`: rho = pi / pi_prox, times min(pi_prox / mu, C)
    (Hilton et al. 2022, with the correction capped). `proximal` defaults to the current policy's values. In a batch's
    first optimizer step they are what recomputing at its beginning gives. Later steps pass the first step's values.
    Where A < 0 the term is bounded by c * A (dual clip, Ye et al. 2020).
    """
    correction = torch.ones_like(advantages)
    anchor = behaviour
    if objective.importance_ratio == "decoupled":
        anchor = logprobs.detach() if proximal is None else proximal
        correction = log_ratio(anchor, behaviour).exp().clamp(max=objective.tis_cap)
    ratio = log_ratio(logprobs, anchor).exp()
    plain = ratio * advantages
    surrogate = torch.minimum(
        plain, ratio.clamp(1.0 - objective.clip_ratio_low, 1.0 + objective.clip_ratio_high) * advantages
    )
    floor = objective.dual_clip * advantages
    dual_clipped = (advantages < 0) & (surrogate < floor)
    bounded = torch.where(dual_clipped, floor, surrogate)
    loss = -correction * bounded
    kl = torch.zeros_like(advantages)
    if reference is not None and unit_logprobs is not None:
        divergence = k3(unit_logprobs, reference)
        loss = loss + objective.kl_coef * divergence
        kl = divergence.detach()
    return TokenTerms(
        loss=loss, ratio=ratio.detach(), clipped=(bounded != plain).detach(), dual_clipped=dual_clipped, kl=kl
    )
