"""Loss and figures of one micro-batch, from the rows that predict a token.

Invariant: a token's weight comes with its sample and holds the whole Take's denominators, so losses add up over
micro-batches and ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from policy.losses import Objective, grpo_terms, log_ratio
from policy.megatron.model import PackedInputs
from policy.megatron.tally import StepTally
from policy.megatron.vocab import VocabRows


@dataclass
class Anchors:
    """Log-probabilities [r] that a micro-batch's later passes are held against, from before its first one."""

    proximal: Tensor | None = None
    reference: Tensor | None = None


def cross_entropy(inputs: PackedInputs, rows: VocabRows, tally: StepTally) -> Tensor:
    """-sum(weight * log pi) over the trained tokens."""
    scores = rows.scores(inputs.targets, entropy=True)
    tally.mean("entropy", scores.entropy)
    tally.mean("accuracy", scores.predicted)
    return -(scores.unit * inputs.weights).sum()


def rehearsal(inputs: PackedInputs, rows: VocabRows, tally: StepTally) -> Tensor:
    """The same of an exercise, with figures of its own."""
    scores = rows.scores(inputs.targets)
    tally.mean("rehearsal_loss", -scores.unit.detach())
    tally.mean("rehearsal_accuracy", scores.predicted)
    return -(scores.unit * inputs.weights).sum()


def grpo(
    inputs: PackedInputs, rows: VocabRows, tally: StepTally, objective: Objective, anchors: Anchors, *, first: bool
) -> Tensor:
    """The loss of `policy.losses`; the `first` pass over a micro-batch sets the anchor pi_prox."""
    at_unit = bool((inputs.temperatures == 1.0).all())
    scores = rows.scores(inputs.targets, None if at_unit else inputs.temperatures, entropy=first)
    if first:
        anchors.proximal = scores.drawn.detach()
    terms = grpo_terms(
        scores.drawn,
        inputs.behaviour,
        inputs.advantages,
        objective,
        proximal=anchors.proximal,
        unit_logprobs=scores.unit,
        reference=anchors.reference,
    )
    if first:
        tally.mean("entropy", scores.entropy)
        if anchors.reference is not None:
            tally.mean("kl", terms.kl)
        _tell_mismatch(inputs, scores.drawn.detach(), objective, tally)
    tally.mean("clip_fraction", terms.clipped)
    tally.mean("dual_clip_fraction", terms.dual_clipped)
    tally.mean("ratio_mean", terms.ratio)
    tally.peak("ratio_max", terms.ratio)
    return (terms.loss * inputs.weights).sum()


def _tell_mismatch(inputs: PackedInputs, logprobs: Tensor, objective: Objective, tally: StepTally) -> None:
    gap = log_ratio(logprobs, inputs.behaviour).abs()
    tally.mean("mismatch_mean", gap)
    tally.peak("mismatch_max", gap)
    tally.mean("far_fraction", gap > math.log(objective.tis_cap))
    tally.mean("fresh_fraction", inputs.fresh)
    tally.mean("agreement_mean", gap[inputs.fresh])
    tally.peak("agreement_max", gap[inputs.fresh])
