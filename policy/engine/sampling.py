"""Tokens and log-probabilities from logits.

Invariant: the reported log-probability is log_softmax(logits / temperature) at the drawn token, whatever tokens its
share leaves out. A greedy draw reports it at temperature 1, as SGLang does. A token of zero probability is never drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_GREEDY_BELOW = 1e-6  # SGLang treats smaller temperatures as greedy
_BELOW_ONE = 1.0 - 2.0**-30  # keeps the target strictly inside the distribution's mass


class Share(NamedTuple):
    """The tokens that a row draws from, of its likeliest ones: SGLang's names, each counted on all tokens."""

    top_p: float = 1.0  # those that together have this share (A. Holtzman et al., 2019)
    top_k: int = 0  # so many; 0 is all
    min_p: float = 0.0  # those that have at least this part of the likeliest's probability


ALL = Share()


@torch.inference_mode()
def draw(
    logits: Tensor, temperatures: list[float], uniforms: list[float], shares: list[Share]
) -> tuple[list[int], list[float]]:
    """Draw one token per row of `logits` [rows, vocab] by inverting the distribution function at `uniforms` in [0, 1).

    A row draws from the tokens of its share alone.
    Returns token ids and their log-probabilities; the latter are not finite where the logits are not.
    """
    greedy = [temperature < _GREEDY_BELOW for temperature in temperatures]
    if any(temperature != 1.0 for temperature in temperatures):
        divisors = [1.0 if cold else temperature for cold, temperature in zip(greedy, temperatures, strict=True)]
        logits = logits / torch.tensor(divisors, dtype=logits.dtype, device=logits.device)[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    if all(greedy):
        tokens = logits.argmax(-1, keepdim=True)
    else:
        likely = logprobs.exp()
        if any(share != ALL for share in shares):
            likely = _within(likely, shares)
        mass = likely.cumsum(-1, dtype=torch.float64)
        points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
        tokens = torch.searchsorted(mass, points * mass[:, -1:] * _BELOW_ONE, right=True)
        tokens = tokens.clamp_(max=logits.shape[-1] - 1)
        if any(greedy):
            cold_rows = torch.tensor(greedy, device=logits.device)[:, None]
            tokens = torch.where(cold_rows, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


def _within(likely: Tensor, shares: list[Share]) -> Tensor:
    """`likely` [rows, vocab], 0 for the tokens outside the share of their row."""
    top_p, top_k, min_p = (
        torch.tensor(column, dtype=torch.float64, device=likely.device)[:, None] for column in zip(*shares, strict=True)
    )
    ordered, order = likely.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    place = torch.arange(likely.shape[-1], device=likely.device)
    out = (before >= top_p) | ((place >= top_k) & (top_k > 0)) | (ordered < min_p * ordered[:, :1])
    return torch.zeros_like(likely).scatter(-1, order, ordered.masked_fill(out, 0.0))


@torch.inference_mode()
def score(logits: Tensor, successors: list[int]) -> list[float]:
    """Log-probabilities (temperature 1) of the token that follows each row of `logits` [rows, vocab]."""
    index = torch.tensor(successors, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1).gather(1, index)[:, 0].tolist()
