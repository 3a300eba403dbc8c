"""Loss and figures of one micro-batch, over a vocabulary that may be split over tensor-parallel ranks.

A token's weight comes with its sample and holds the whole batch's denominators, so losses add up over micro-batches and
ranks.

Invariant: every rank gets the same log-probabilities, those of the whole vocabulary; their arithmetic is in fp32. A row
that only fills a rank's shard up has no logit, so it gets no probability and no gradient. No more rows than a chunk's
have logits at once: the backward pass computes them again where there are several chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812  the name everyone knows
from megatron.core import parallel_state
from torch import Tensor

from policy.losses import grpo_terms, log_ratio
from policy.megatron.layers import PackedInputs
from policy.megatron.ranks import StepTally
from policy.memory import CHUNK
from policy.settings import Objective


@dataclass(frozen=True)
class TokenScores:
    """What the vocabulary's distribution says of each target, all [r]; entropy and `predicted` carry no gradient."""

    unit: Tensor  # log-probability at temperature 1
    drawn: Tensor  # the same at the token's own temperature
    entropy: Tensor  # at temperature 1, in nats; empty where it was not asked for
    predicted: Tensor  # bool: no other token has a larger logit


@dataclass(frozen=True)
class VocabRows:
    """The predicted rows of a micro-batch: hidden states [r, h] and the output layer's weight [vocab shard, h].

    All shards have equally many rows; of the last those beyond the `vocab` tokens are padding.
    """

    hidden: Tensor
    weight: Tensor
    vocab: int

    def logits(self) -> Tensor:
        """Logits [r, tokens of this rank's shard] in fp32, all at once."""
        return _logits(self.hidden, self._of_tokens())

    def scores(self, targets: Tensor, temperatures: Tensor | None = None, *, entropy: bool = False) -> TokenScores:
        """Of `targets` [r], which have `temperatures` [r] where not all are 1."""
        most = CHUNK["cpu" if self.hidden.device.type == "cpu" else "cuda"]
        unit, drawn, spread, predicted = _Scores.apply(
            self.hidden,
            self._of_tokens(),
            targets,
            temperatures,
            entropy,
            self._first(),
            max(1, most // self.weight.size(0)),  # of the padded shard: ranks have their chunks together
        )
        return TokenScores(unit, unit if drawn is None else drawn, spread, predicted)

    def _first(self) -> int:
        return int(parallel_state.get_tensor_model_parallel_rank()) * self.weight.size(0)

    def _of_tokens(self) -> Tensor:
        tokens = self.vocab - self._first()
        return self.weight if tokens >= self.weight.size(0) else self.weight[:tokens]


def _logits(hidden: Tensor, weight: Tensor) -> Tensor:
    return F.linear(hidden.to(weight.dtype), weight).float()


def _reduced(values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
    if parallel_state.get_tensor_model_parallel_world_size() > 1:
        dist.all_reduce(values, operation, group=parallel_state.get_tensor_model_parallel_group())
    return values


def _places(targets: Tensor, first: int, shard: int) -> tuple[Tensor, Tensor]:
    """Where the targets are among the `shard` tokens from `first` on [r, 1], and whether they are there [r]."""
    here = (targets >= first) & (targets < first + shard)
    return torch.where(here, targets - first, 0)[:, None], here


def _summed(logits: Tensor, peak: Tensor, here: Tensor, target: Tensor, *, entropy: bool) -> list[Tensor]:
    """Log of the softmax's denominator, the target's logit and, where wanted, the expected logit; each [c]."""
    exps = (logits - peak[:, None]).exp_()
    sums = [exps.sum(-1), torch.where(here, target, 0.0)]
    if entropy:
        sums.append(exps.mul_(logits).sum(-1))
    total, of_target, *expected = _reduced(torch.stack(sums), dist.ReduceOp.SUM)
    return [peak + total.log(), of_target, *(value / total for value in expected)]


class _Scores(torch.autograd.Function):
    """The output layer and the softmax in one, a chunk of rows at a time."""

    @staticmethod
    def forward(  # noqa: PLR0917  autograd passes by position
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperatures: Tensor | None,
        entropy: bool,
        first: int,
        rows: int,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Values of `TokenScores`; `first` is the token of the weight's first row, `rows` the most of a chunk."""
        logits = torch.empty(0)
        parts: list[list[Tensor]] = []  # of each chunk: unit, its normalizer, predicted, then what else is wanted
        for chunk in _chunks(targets.numel(), rows):
            logits = _logits(hidden[chunk], weight)
            peak = _reduced(logits.amax(-1), dist.ReduceOp.MAX)
            places, here = _places(targets[chunk], first, weight.size(0))
            target = logits.gather(-1, places)[:, 0]
            norm, of_target, *expected = _summed(logits, peak, here, target, entropy=entropy)
            part = [of_target - norm, norm, of_target >= peak, *(norm - value for value in expected)]
            if temperatures is not None:
                scale = temperatures[chunk]
                scaled = logits / scale[:, None]
                norm, of_target = _summed(scaled, peak / scale, here, target / scale, entropy=False)
                part += [of_target - norm, norm]
            parts.append(part)
        unit, unit_norm, predicted, *rest = (torch.cat(values) for values in zip(*parts, strict=True))
        spread = rest.pop(0) if entropy else unit.new_empty(0)
        drawn, drawn_norm = rest or (None, None)
        ctx.first, ctx.rows = first, rows
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(predicted, spread)
        kept = logits if len(parts) == 1 and any(ctx.needs_input_grad) else None
        ctx.save_for_backward(hidden, weight, targets, temperatures, unit_norm, drawn_norm, kept)
        return unit, drawn, spread, predicted

    @staticmethod
    def backward(ctx: Any, unit: Tensor | None, drawn: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """The gradient of a log-probability in the logits is the target's indicator less the probabilities."""
        hidden, weight, targets, temperatures, unit_norm, drawn_norm, kept = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight: Tensor | None = None
        for chunk in _chunks(targets.numel(), ctx.rows):
            logits = _logits(hidden[chunk], weight) if kept is None else kept
            places, here = _places(targets[chunk], ctx.first, weight.size(0))
            grad = torch.zeros_like(logits) if unit is None and drawn is None else None
            if unit is not None:
                grad = _slope(logits, unit_norm[chunk], places, here, unit[chunk])
            if drawn is not None:
                scale = temperatures[chunk]
                slope = _slope(logits / scale[:, None], drawn_norm[chunk], places, here, drawn[chunk] / scale)
                grad = slope if grad is None else grad.add_(slope)
            assert grad is not None
            grad = grad.to(weight.dtype)
            if of_hidden is not None:
                of_hidden[chunk] = (grad @ weight).to(hidden.dtype)
            if ctx.needs_input_grad[1]:
                part = grad.t() @ hidden[chunk].to(weight.dtype)
                # The sum over chunks is fp32's, as inside one product.
                of_weight = part if of_weight is None else of_weight.float().add_(part)
        return of_hidden, None if of_weight is None else of_weight.to(weight.dtype), *[None] * 5


def _slope(scaled: Tensor, norm: Tensor, places: Tensor, here: Tensor, of_value: Tensor) -> Tensor:
    """The gradient [c, vocab shard] that `of_value` [c] sends through log-probabilities to the scaled logits."""
    grad = (scaled - norm[:, None]).exp_().mul_(-of_value[:, None])
    return grad.scatter_add_(1, places, torch.where(here, of_value, 0.0)[:, None])


def _chunks(rows: int, most: int) -> Iterator[slice]:
    """Even slices of at most `most` rows; one where there are no rows."""
    count = max(1, -(-rows // most))
    size = max(1, -(-rows // count))
    return (slice(start, start + size) for start in range(0, max(rows, 1), size))


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
    scores = rows.scores(inputs.targets, None if inputs.at_unit else inputs.temperatures, entropy=first)
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
        lengths=inputs.lengths,
    )
    if first:
        tally.mean("entropy", scores.entropy)
        if anchors.reference is not None:
            tally.mean("kl", terms.kl)
        _count_mismatch(inputs, scores.drawn.detach(), objective, tally)
    tally.mean("clip_fraction", terms.clipped)
    tally.mean("dual_clip_fraction", terms.dual_clipped)
    if objective.mismatch.endswith("mask"):
        tally.mean("masked_fraction", terms.masked)
    tally.mean("ratio_mean", terms.ratio)
    tally.peak("ratio_max", terms.ratio)
    return (terms.loss * inputs.weights).sum()


RATIOS, SQUARES = "ratios", "squares"  # sums over the batch's tokens, for `effective_samples`


def effective_samples(figures: dict[str, float]) -> dict[str, float]:
    """Replace the sums by `effective_samples`, (sum w)^2 / (n sum w^2) of the tokens' w = pi / mu: 1 on policy."""
    ratios, squares = figures.pop(RATIOS, 0.0), figures.pop(SQUARES, 0.0)
    return {**figures, "effective_samples": ratios * ratios / (figures["tokens"] * squares)} if squares else figures


def _count_mismatch(inputs: PackedInputs, logprobs: Tensor, objective: Objective, tally: StepTally) -> None:
    gap = log_ratio(logprobs, inputs.behaviour)
    tally.total(RATIOS, gap.exp().sum())
    tally.total(SQUARES, (2 * gap).exp().sum())
    gap = gap.abs()
    tally.mean("mismatch_mean", gap)
    tally.peak("mismatch_max", gap)
    tally.mean("far_fraction", gap > math.log(objective.tis_cap))
    tally.mean("fresh_fraction", inputs.fresh)
    fresh = gap[inputs.fresh_places]
    tally.mean("agreement_mean", fresh)
    tally.peak("agreement_max", fresh)
