"""Tokens and log-probabilities from logits.

Invariant: the reported log-probability is log_softmax(logits / temperature) at the drawn token. A greedy draw reports
it at temperature 1, as SGLang does. A token of zero probability is never drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GREEDY_BELOW = 1e-6  # SGLang treats smaller temperatures as greedy
_BELOW_ONE = 1.0 - 2.0**-30  # keeps the target strictly inside the distribution's mass


@torch.inference_mode()
def draw(logits: Tensor, temperatures: list[float], uniforms: list[float]) -> tuple[list[int], list[float]]:
    """Draw one token per row of `logits` [rows, vocab] by inverting the distribution function at `uniforms` in [0, 1).

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
        mass = logprobs.exp().cumsum(-1, dtype=torch.float64)
        points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None]
        tokens = torch.searchsorted(mass, points * mass[:, -1:] * _BELOW_ONE, right=True)
        tokens = tokens.clamp_(max=logits.shape[-1] - 1)
        if any(greedy):
            cold_rows = torch.tensor(greedy, device=logits.device)[:, None]
            tokens = torch.where(cold_rows, logits.argmax(-1, keepdim=True), tokens)
    return tokens[:, 0].tolist(), logprobs.gather(1, tokens)[:, 0].tolist()


@torch.inference_mode()
def score(logits: Tensor, successors: list[int]) -> list[float]:
    """Log-probabilities (temperature 1) of the token that follows each row of `logits` [rows, vocab]."""
    index = torch.tensor(successors, device=logits.device)[:, None]
    return torch.log_softmax(logits, dim=-1).gather(1, index)[:, 0].tolist()
