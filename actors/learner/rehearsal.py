"""Exercises of the base model's corpus beside what the policy learns, so that it does not unlearn to point and copy.

Invariant: the exercises of a step are a function of the run's seed and the step's number. A plan that is made again
after a crash, in a new lineage, holds the same exercises. They know no task (`policy.base.corpus`).

Mixing the pre-training loss into RL is PPO-ptx of Ouyang et al. 2022 (arXiv:2203.02155, equation 2). Here it goes into
cloning and pulses, too. Without it a small policy learns the training tasks' wordings by heart.
"""

from __future__ import annotations

from random import Random

from actors.learner.config import LearnerConfig
from policy.base.corpus import sequence
from policy.packing import Aggregation, MicroBatch, pack_cross_entropy
from policy.tokenizer import Tokenizer
from runtime.messaging.message import Version

LIMIT = 512  # tokens of an exercise, unless its screen alone is longer


class Exercises:
    """Draws them for one model's vocabulary."""

    def __init__(self, base: str, seed: int) -> None:
        """`base` is a Hugging Face folder with the vocabulary of the bundled base model."""
        self._tokenizer = Tokenizer.load(base)
        self._seed = seed

    def of(self, version: Version, config: LearnerConfig, epochs: int = 1) -> list[list[MicroBatch]]:
        """The exercises of the step that makes `version`, others in each of its `epochs` optimizer steps.

        Weights are `rehearsal_coef` over all tokens of an optimizer step's. A run that begins from another's cloned
        weights counts from 1 again. With the same seed it rehearses first what that cloning rehearsed first.
        """
        rng = Random(f"{self._seed} rehearses for {version.step}")  # noqa: S311 - data, no secret
        drawn = [[sequence(rng, self._tokenizer, LIMIT) for _ in range(config.rehearsal)] for _ in range(epochs)]
        budget, coef, ranks = config.token_budget, config.rehearsal_coef, config.parallel.data
        return [pack_cross_entropy(exercises, budget, Aggregation.TOKEN_MEAN, coef, ranks) for exercises in drawn]
