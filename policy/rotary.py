"""The angles by which positions turn queries and keys: learner and engine take them from here.

Invariant: they are computed in float32, step by step as transformers does, so that both agree to the last bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from policy.architecture import Architecture


def inverse_frequencies(arch: Architecture) -> Tensor:
    """Radians per position of each rotary pair, [rotary_dim / 2] float32.

    With Llama 3's scaling a pair that turns less than `low_freq_factor` times within the original context is slowed
    by `factor`, one that turns more than `high_freq_factor` times stays, and between them is a straight passage.
    """
    steps = torch.arange(0, arch.rotary_dim, 2, dtype=torch.float32) / arch.rotary_dim
    rates = 1.0 / (arch.rope_base**steps)
    scaling = arch.rope_scaling
    if scaling is None:
        return rates
    lengths = 2 * math.pi / rates  # tokens of a whole turn
    original = scaling.original_max_position_embeddings
    slowed = torch.where(lengths > original / scaling.low_freq_factor, rates / scaling.factor, rates)
    share = (original / lengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    between = (1 - share) * slowed / scaling.factor + share * slowed
    inside = (lengths >= original / scaling.high_freq_factor) & (lengths <= original / scaling.low_freq_factor)
    return torch.where(inside, between, slowed)
