"""Invariant: sampler and learner agree on log-probabilities, in float32 to 1e-4.

What the engine reports while it samples - batched, from cached prefixes, at a temperature - is what Megatron's model
computes for the same tokens from the same folder; otherwise every importance ratio is wrong.
"""

from __future__ import annotations

import random

import pytest

from policy.megatron.trainer import Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import OptimConfig
from tests.policy.engine_tools import VOCAB, make_core, response, run_core, write_model

TOLERANCE = 1e-4
SHARED = 24  # tokens of prefix common to all prompts


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(3)
    shared = [rng.randrange(VOCAB) for _ in range(SHARED)]
    return [shared + [rng.randrange(VOCAB) for _ in range(5 + 9 * i)] for i in range(count)]


@pytest.mark.parametrize("style", ["qwen2", "qwen3"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_learner_agree(tmp_path, style, temperature):
    model = write_model(tmp_path / "model", style, tied=style == "qwen2")
    core = make_core(model, max_running_requests=3)
    first, *others = [response(str(i), ids, 12 + i, temperature=temperature) for i, ids in enumerate(prompts(6))]
    run_core(core, first)
    run_core(core, *others)
    assert all(one.cached == SHARED for one in others)
    assert core.figures.max_pass_sequences >= 2
    sampled = [first, *others]
    packed = [
        PackedSample(
            ids=one.ids,
            response_len=len(one.output),
            weight=1.0,
            behaviour_logprobs=one.logprobs,
            temperature=temperature,
        )
        for one in sampled
    ]
    trainer = Trainer(model, OptimConfig())
    found = trainer.logprobs(MicroBatch(samples=packed))
    for one, logprobs in zip(sampled, found, strict=True):
        assert logprobs == pytest.approx(one.logprobs, abs=TOLERANCE)
