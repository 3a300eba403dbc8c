"""Tokens and log-probabilities from logits.

Invariant: the reported log-probability is log_softmax(logits / temperature) at the drawn token, whatever tokens top_p
leaves out. A greedy draw reports it at temperature 1, as SGLang does. A token of zero probability is never drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GREEDY_BELOW = 1e-6  # SGLang treats smaller temperatures as greedy
_BELOW_ONE = 1.0 - 2.0**-30  # keeps the target strictly inside the distribution's mass


@torch.inference_mode()
def draw(
    logits: Tensor, temperatures: list[float], uniforms: list[float], top_ps: list[float]
) -> tuple[list[int], list[float]]:
    """Draw one token per row of `logits` [rows, vocab] by inverting the distribution function at `uniforms` in [0, 1).

    A row draws from its likeliest tokens alone that together have the share `top_ps` (A. Holtzman et al., The Curious
    Case of Neural Text Degeneration, 2019).
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
        if any(top_p < 1.0 for top_p in top_ps):
            likely = _nucleus(likely, torch.tensor(top_ps, dtype=torch.float64, device=logits.device)[:, None])
        mass = likely.cumsum(-1, dtype=torch.float64)
        points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
        tokens = torch.searchsorted(mass, points * mass[:, -1:] * _BELOW_ONE, right=True)
        tokens = tokens.clamp_(max=logits.shape[-1] - 1)
        if any(greedy):
            cold_rows = torch.tensor(greedy, device=logits.device)[:, None]
            tokens = torch.where(cold_rows, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


def _nucleus(likely: Tensor, shares: Tensor) -> Tensor:
    """`likely` [rows, vocab], 0 for a token where the likelier tokens of its row have the share of `shares` already."""
    ordered, order = likely.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    return torch.zeros_like(likely).scatter(-1, order, ordered.masked_fill(before >= shares, 0.0))


@torch.inference_mode()
def score(logits: Tensor, successors: list[int]) -> list[float]:
    """Log-probabilities (temperature 1) of the token that follows each row of `logits` [rows, vocab]."""
    index = torch.tensor(successors, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1).gather(1, index)[:, 0].tolist()
