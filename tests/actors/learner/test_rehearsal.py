"""Exercises beside what the policy learns."""

import pytest

from actors.learner.batches import Exercises
from actors.learner.config import LearnerConfig
from policy.base import MODEL
from policy.packing import MicroBatch, PackedSample
from runtime.messaging.message import Version

FOUR = LearnerConfig(rehearsal=4, rehearsal_coef=0.25, token_budget=700)


def samples(batches: list[MicroBatch]) -> list[PackedSample]:
    return [sample for batch in batches for sample in batch.samples]


def test_a_step_has_its_own_exercises_and_always_the_same() -> None:
    exercises = Exercises(str(MODEL), 7)
    [drawn] = exercises.of(Version(lineage=0, step=3), FOUR)
    assert len(samples(drawn)) == 4
    assert [drawn] == Exercises(str(MODEL), 7).of(Version(lineage=0, step=3), FOUR)
    assert [drawn] != exercises.of(Version(lineage=0, step=4), FOUR)
    assert [drawn] == exercises.of(Version(lineage=1, step=3), FOUR), "made again after a crash"
    assert [drawn] != Exercises(str(MODEL), 8).of(Version(lineage=0, step=3), FOUR)


def test_every_optimizer_step_of_a_batch_has_its_own() -> None:
    exercises = Exercises(str(MODEL), 7)
    version = Version(lineage=0, step=3)
    first, second, third = exercises.of(version, FOUR, 3)
    assert [len(samples(drawn)) for drawn in (first, second, third)] == [4, 4, 4]
    assert first not in (second, third)
    assert second != third
    assert [first] == exercises.of(version, FOUR)


def test_their_tokens_share_the_coefficient_evenly() -> None:
    [drawn] = Exercises(str(MODEL), 0).of(Version(lineage=0, step=1), FOUR)
    found = samples(drawn)
    assert sum(sample.weight * sample.response_len for sample in found) == pytest.approx(0.25)
    assert len({sample.weight for sample in found}) == 1
    assert all(batch.tokens <= 700 or len(batch.samples) == 1 for batch in drawn)
    assert all(sample.spans and list(sample.targets())[-1] == len(sample.ids) - 1 for sample in found)
