"""What the engine says about its load.

Invariant: figures are read between two passes, so they belong together.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from policy.engine.core import EngineCore


def loads(core: EngineCore) -> dict[str, Any]:
    """Body of /v1/loads; `forward` holds batch sizes: passes, sequences in them, the largest."""
    scheduler, figures = core.scheduler, core.figures
    used = sum(sequence.computed for sequence in scheduler.running)
    capacity = core.options.max_running_requests * core.length
    load = {
        "num_running_reqs": len(scheduler.running),
        "num_waiting_reqs": len(scheduler.waiting),
        "num_used_tokens": used,
        "token_usage": used / capacity,
        "gen_throughput": figures.generated_tokens / figures.pass_s if figures.pass_s else 0.0,
        "cached_blocks": len(core.prefix),
        "forward": {
            "passes": figures.passes,
            "sequences": figures.pass_sequences,
            "max_sequences": figures.max_pass_sequences,
            "cpu_s": figures.pass_cpu_s,
        },
        "figures": msgspec.to_builtins(figures),
    }
    return {"timestamp": time.time(), "version": "computerrl-engine", "loads": [load]}


def metrics_text(core: EngineCore) -> str:
    """Body of /metrics: SGLang's names where it has one."""
    scheduler, figures = core.scheduler, core.figures
    gauges = {
        "num_running_reqs": len(scheduler.running),
        "num_queue_reqs": len(scheduler.waiting),
        "token_usage": sum(one.computed for one in scheduler.running)
        / (core.options.max_running_requests * core.length),
        "gen_throughput": figures.generated_tokens / figures.pass_s if figures.pass_s else 0.0,
        "cache_hit_rate": figures.cached_tokens / figures.prompt_tokens if figures.prompt_tokens else 0.0,
        "max_forward_sequences": figures.max_pass_sequences,
        "mean_forward_sequences": figures.pass_sequences / figures.passes if figures.passes else 0.0,
    }
    counters = {
        "prompt_tokens_total": figures.prompt_tokens,
        "cached_tokens_total": figures.cached_tokens,
        "generation_tokens_total": figures.generated_tokens,
        "forward_passes_total": figures.passes,
        "num_aborted_requests_total": figures.aborted,
        "num_retracted_reqs_total": figures.retracted,
    }
    lines = []
    for kind, values in (("gauge", gauges), ("counter", counters)):
        for name, value in values.items():
            lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name} {value}"]
    return "\n".join(lines) + "\n"
