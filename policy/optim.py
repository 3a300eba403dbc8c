"""Settings of a trainer, apart from the library that runs it, so that reading a deploy file loads no torch.

Invariant: everything here is fixed for the life of a trainer; what may change between steps comes with the step.
"""

from __future__ import annotations

import msgspec

from policy.lora import LoraConfig


class OptimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adam as Megatron runs it. The learning rate comes with every step."""

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip_grad: float = 1.0
    dtype: str = "float32"  # float32 on CPU; bfloat16 keeps fp32 main weights and gradients
    recompute: str = "none"  # what the backward pass computes again: "selective" is each MLP, "full" each layer
    lora: LoraConfig = LoraConfig()
    seed: int = 1234  # of what is drawn: adapters alone, for weights come from files
