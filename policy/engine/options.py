"""Options of the engine process and the figures it reports.

Invariant: everything that grows has a bound here.
"""

from __future__ import annotations

import msgspec


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes; defaults suit a model of about a million parameters on one CPU thread."""

    model_path: str
    weight_version: str = "default"
    device: str = "cpu"
    dtype: str = "float32"  # of weights, keys and values: float32 or bfloat16
    max_running_requests: int = 32  # sequences in one forward pass
    max_queued_requests: int = 256  # sequences in the line; more are refused with status 503
    context_length: int | None = None  # tokens; None: the model's own
    cache_tokens: int = 32_768  # tokens in the prefix pool
    block_tokens: int = 8  # granularity of prefix reuse
    prefill_tokens: int = 2_048  # prompt tokens in one forward pass
    max_pinned: int = 4  # weight versions kept beside the current one


class EngineFigures(msgspec.Struct):
    """Counts since start, written by the compute thread."""

    passes: int = 0
    pass_sequences: int = 0  # sum over passes
    max_pass_sequences: int = 0
    pass_s: float = 0.0  # wall time inside forward passes and sampling
    pass_cpu_s: float = 0.0  # CPU time of the compute thread inside them
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    retracted: int = 0
    weight_loads: int = 0
