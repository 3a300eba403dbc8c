"""Token terms of step-level GRPO.

The loss is a weighted sum over tokens, and the weights come with the samples. So the sum over micro-batches and ranks
is the batch's loss. KL is at temperature 1, the ratio and the mismatch at the temperature that the token was drawn at.

The policy term's slope in log pi is bounded, however far a token's policy is from the policy that drew it. The bound is
max(1 + clip_ratio_high, c) * |A| with `direct`, and C times that with `decoupled` and a cap or a mask. So no token has
to be thrown away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from policy import plugins
from policy.errors import LearnerError
from policy.settings import Objective

LOG_RATIO_LIMIT = 20.0  # its exp is finite in fp32, and any clip setting cuts a ratio that far out


@dataclass(frozen=True)
class TokenTerms:
    """Per-token terms [r]; only `loss` carries a gradient."""

    loss: Tensor
    ratio: Tensor  # pi / mu (direct) or pi / pi_prox (decoupled); of the whole sample with `ratio: sequence`
    clipped: Tensor  # bool: the policy term is on a flat part
    dual_clipped: Tensor  # bool: on the flat part that the dual clip adds
    masked: Tensor  # bool: left out, because engine and learner disagree too far
    kl: Tensor  # k3 against the reference; 0 without one


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Difference of log-probabilities, bounded so that its exp is finite."""
    return (numerator - denominator).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Schulman's low-variance, non-negative estimate of KL(pi || pi_ref): r - 1 - log r with r = pi_ref / pi."""
    delta = log_ratio(reference, logprobs)
    return delta.exp() - 1.0 - delta


class LossTokens(NamedTuple):
    """What a loss of one's own gets of a micro-batch's tokens: all [r] but `lengths`, the tokens of each sample."""

    logprobs: Tensor  # with gradient, at the recorded temperature
    behaviour: Tensor  # of the engine that drew them
    proximal: Tensor  # of the policy before the step
    advantages: Tensor
    lengths: Tensor | None


def own_loss(name: str, tokens: LossTokens) -> Tensor:
    """What the named function makes of the tokens [r]. Raises LearnerError for another shape or unbounded numbers."""
    loss = plugins.call(name, plugins.LOSS, tokens)
    if not isinstance(loss, Tensor) or loss.shape != tokens.logprobs.shape:
        raise LearnerError(f"{plugins.LOSS} {name} gave no loss for each of {tokens.logprobs.numel()} tokens")
    if not bool((loss.detach().abs() <= plugins.LOSS_MOST).all()):
        raise LearnerError(f"{plugins.LOSS} {name} gave a loss that is not finite, or beyond {plugins.LOSS_MOST:g}")
    return loss


def over_samples(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Of each token the mean of `values` [r] over its sample; `lengths` are the samples' tokens, in order.

    Without `lengths` all tokens are one sample's.
    """
    if lengths is None:
        return values.mean().expand_as(values) if values.numel() else values
    places = torch.arange(len(lengths), device=values.device)
    sample = torch.repeat_interleave(places, lengths, output_size=values.numel())  # which a GPU would be asked for
    sums = torch.zeros(len(lengths), dtype=values.dtype, device=values.device).index_add(0, sample, values)
    return (sums / lengths)[sample]


def correction_of(anchor: Tensor, behaviour: Tensor, objective: Objective, lengths: Tensor | None) -> Tensor:
    """What multiplies a token's term because the engine's log-probability differs from the learner's; all [r].

    With w = pi_prox / mu and the bounds [1 / C, C]: `none` is 1, `tis` min(w, C) (Yao et al. 2025), `token_mask` w
    inside the bounds and 0 outside (IcePop), `sequence_mask` the same of the geometric mean of w over a sample (MIS).
    Under `direct` pi / mu holds w already, so a mask is 1 or 0, and `tis` changes nothing.
    """
    if objective.mismatch == "none" or (objective.mismatch == "tis" and objective.importance_ratio == "direct"):
        return torch.ones_like(behaviour)
    gap = log_ratio(anchor, behaviour)
    if objective.mismatch == "tis":
        return gap.exp().clamp(max=objective.tis_cap)
    if objective.mismatch == "sequence_mask":
        gap = over_samples(gap, lengths)
    inside = gap.abs() <= math.log(objective.tis_cap)
    return torch.where(inside, torch.ones_like(gap) if objective.importance_ratio == "direct" else gap.exp(), 0.0)


def grpo_terms(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    objective: Objective,
    *,
    proximal: Tensor | None = None,
    unit_logprobs: Tensor | None = None,
    reference: Tensor | None = None,
    lengths: Tensor | None = None,
) -> TokenTerms:
    """Loss -(clipped surrogate) + beta * k3 of every token; all arguments are [r] but `lengths` [samples].

    `logprobs` (with gradient) and `behaviour` are at the recorded temperature, `unit_logprobs` (with gradient) and
    `reference` at temperature 1. `direct`: rho = pi / mu. `decoupled`: rho = pi / pi_prox, times `correction_of`
    (Hilton et al. 2022, with the correction capped). `proximal` defaults to the current policy's values. In a batch's
    first optimizer step they are what recomputing at its beginning gives. Later steps pass the first step's values.
    With `ratio: sequence` rho is the geometric mean over a sample's tokens (GSPO, arXiv 2507.18071).
    Where A < 0 the term is bounded by c * A (dual clip, Ye et al. 2020).
    """
    learned = logprobs.detach() if proximal is None else proximal
    correction = correction_of(learned, behaviour, objective, lengths)
    gap = log_ratio(logprobs, learned if objective.importance_ratio == "decoupled" else behaviour)
    ratio = (over_samples(gap, lengths) if objective.ratio == "sequence" else gap).exp()
    plain = ratio * advantages
    surrogate = torch.minimum(
        plain, ratio.clamp(1.0 - objective.clip_ratio_low, 1.0 + objective.clip_ratio_high) * advantages
    )
    floor = objective.dual_clip * advantages
    dual_clipped = (advantages < 0) & (surrogate < floor)
    bounded = torch.where(dual_clipped, floor, surrogate)
    loss = -correction * bounded
    if objective.loss:
        own = own_loss(objective.loss, LossTokens(logprobs, behaviour, learned, advantages, lengths))
        loss = torch.where(correction == 0.0, 0.0, own)  # it weighs the other tokens by itself
    if objective.entropy_coef:
        # Of tokens drawn from pi the mean of (log pi + H) d log pi is minus the gradient of the entropy H.
        loss = loss + objective.entropy_coef * (logprobs.detach() + objective.entropy) * logprobs
    kl = torch.zeros_like(advantages)
    if reference is not None and unit_logprobs is not None:
        divergence = k3(unit_logprobs, reference)
        loss = loss + objective.kl_coef * divergence
        kl = divergence.detach()
    return TokenTerms(
        loss=loss,
        ratio=ratio.detach(),
        clipped=(bounded != plain).detach(),
        dual_clipped=dual_clipped,
        masked=correction == 0.0,
        kl=kl,
    )
