"""Packing and the weights that make it not matter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.packing import (
    Aggregation,
    MicroBatch,
    PackedSample,
    SeenPicture,
    deal,
    group_weights,
    pack,
    pack_cross_entropy,
    packed_length,
    sample_weights,
    siblings,
)

LENGTHS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=5)


def sample(length: int, response: int = 1) -> PackedSample:
    """No two lengths have a prompt in common."""
    return PackedSample(ids=[length] * length, response_len=response, weight=0.5)


def answer(prompt: list[int], length: int) -> PackedSample:
    return PackedSample(ids=prompt + [9] * length, response_len=length, weight=0.5)


def test_step_mean_is_the_papers_denominator() -> None:
    # Two groups; the first has steps of 2 and 4 tokens, the second one step of 5.
    assert group_weights([[2, 4], [5]], Aggregation.STEP_MEAN) == [[1 / (2 * 2 * 2), 1 / (2 * 2 * 4)], [1 / (2 * 5)]]


def test_token_mean_and_token_sum() -> None:
    assert group_weights([[2, 4], [5]], Aggregation.TOKEN_MEAN) == [[1 / 11, 1 / 11], [1 / 11]]
    assert group_weights([[2, 4], [5]], Aggregation.TOKEN_SUM) == [[1.0, 1.0], [1.0]]
    assert sample_weights([3, 6], Aggregation.STEP_MEAN) == [1 / 6, 1 / 12]
    assert sample_weights([], Aggregation.STEP_MEAN) == []


def test_trajectory_mean_gives_each_trajectory_the_same_whatever_its_length() -> None:
    # Two groups; the first has a trajectory of steps of 2 and 4 tokens and one of a single step of 3, the second one.
    weights = group_weights([[2, 4, 3], [5]], Aggregation.TRAJECTORY_MEAN, [[2, 1], [1]])
    assert weights == [[1 / 24, 1 / 24, 1 / 12], [1 / 10]]
    assert sample_weights([3, 6], Aggregation.TRAJECTORY_MEAN) == [1 / 6, 1 / 12], "each step by itself"


@pytest.mark.parametrize("groups", [[[]], [[3], []], [[0, 2]]])
def test_empty_groups_and_responses_are_refused(groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="tokens"):
        group_weights(groups, Aggregation.STEP_MEAN)


@given(LENGTHS, st.sampled_from([Aggregation.STEP_MEAN, Aggregation.TOKEN_MEAN]))
def test_means_have_weights_that_add_up_to_one(groups: list[list[int]], aggregation: Aggregation) -> None:
    weights = group_weights(groups, aggregation)
    total = math.fsum(w * n for ws, ns in zip(weights, groups, strict=True) for w, n in zip(ws, ns, strict=True))
    assert total == pytest.approx(1.0)


@given(st.lists(st.integers(2, 60), max_size=40, unique=True), st.integers(20, 80))
def test_samples_of_their_own_fill_the_budget(lengths: list[int], budget: int) -> None:
    packed = pack([sample(length) for length in lengths], budget)
    # First fit leaves at most one micro-batch half empty among those that hold more than one sample.
    assert sum(2 * batch.tokens <= budget for batch in packed) <= 1


def test_the_longest_comes_first_and_gaps_are_filled() -> None:
    packed = pack([sample(3), sample(7), sample(2), sample(8)], 10)
    assert [[len(s.ids) for s in batch.samples] for batch in packed] == [[8, 2], [7, 3]]


def test_siblings_have_one_prompt_and_no_spans() -> None:
    a, b, c = answer([1, 2], 3), answer([1, 2, 9], 2), answer([1, 2], 5)
    with_spans = PackedSample(ids=[1, 2, 9, 9, 9], response_len=3, weight=1.0, spans=[(2, 5)])
    assert siblings([a, b, c, with_spans, with_spans, a]) == [[0, 2, 5], [1], [3], [4]]
    assert packed_length([a, c, a]) == 2 + 3 + 5 + 3
    assert MicroBatch(samples=[a, b, c, with_spans]).tokens == (2 + 3 + 5) + 5 + 5


def test_siblings_saw_the_same_pictures() -> None:
    def seen(digest: str, at: int = 1) -> PackedSample:
        picture = SeenPicture(at=at, digest=digest, png=b"")
        return PackedSample(ids=[1, 2, 2, 3, 9], response_len=1, weight=0.5, pictures=(picture,))

    blind = PackedSample(ids=[1, 2, 2, 3, 9], response_len=1, weight=0.5)
    assert siblings([seen("a"), seen("b"), blind, seen("a"), blind, seen("a", 2)]) == [[0, 3], [1], [2, 4], [5]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=30), st.integers(10, 60))
def test_siblings_stay_together_while_they_fit(answers: list[tuple[int, int]], budget: int) -> None:
    samples = [answer([prompt] * 6, length) for prompt, length in answers]
    packed = pack(samples, budget)
    key = str
    assert sorted((s for batch in packed for s in batch.samples), key=key) == sorted(samples, key=key)
    for batch in packed:
        assert batch.tokens <= budget or len(batch.samples) == 1
    for prompt in range(4):
        together = [s for s in samples if s.prompt == [prompt] * 6]
        if together and packed_length(together) <= budget:
            assert sum(any(s in batch.samples for s in together) for batch in packed) == 1


def test_targets_are_the_response_or_the_spans() -> None:
    assert list(sample(5, response=2).targets()) == [3, 4]
    with_spans = PackedSample(ids=list(range(9)), response_len=3, weight=1.0, spans=[(2, 3), (6, 8)])
    assert list(with_spans.targets()) == [2, 6, 7]


def test_sequences_with_trained_ranges() -> None:
    batches = pack_cross_entropy([([1] * 8, [(2, 4), (6, 7)]), ([2] * 4, [(3, 4)])], 16, Aggregation.TOKEN_MEAN)
    assert batches == [
        MicroBatch(
            samples=[
                PackedSample(ids=[1] * 8, response_len=3, weight=0.25, spans=[(2, 4), (6, 7)]),
                PackedSample(ids=[2] * 4, response_len=1, weight=0.25, spans=[(3, 4)]),
            ]
        )
    ]
    for wrong in ([(0, 2)], [(1, 2), (0, 1)]):
        with pytest.raises(ValueError, match="context"):
            pack_cross_entropy([([1, 2], wrong)], 16, Aggregation.TOKEN_MEAN)
    ((second,),) = (batch.samples for batch in pack_cross_entropy([([1, 2], [(1, 2)])], 16, Aggregation.TOKEN_MEAN))
    assert second.spans == [(1, 2)], "the second token has the first as its context"


def test_siblings_fill_a_micro_batch_to_its_last_token() -> None:
    samples = [answer([1] * 6, 2) for _ in range(4)]
    assert [batch.tokens for batch in pack(samples, 6 + 2 + 2)] == [10, 10]
    assert [len(batch.samples) for batch in pack(samples, 6 + 2 + 2 - 1)] == [1, 1, 1, 1]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(20, 200), st.integers(1, 5))
def test_every_micro_batch_goes_to_one_data_rank_and_loads_are_even(
    lengths: list[int], budget: int, ranks: int
) -> None:
    samples = [sample(length) for length in lengths]
    batches = pack(samples, budget, ranks)
    assert all(batch.tokens <= budget for batch in batches if len(batch.samples) > 1)
    dealt = deal(batches, ranks)
    assert len(dealt) == ranks
    assert sorted(batches.index(batch) for mine in dealt for batch in mine) == sorted(map(batches.index, batches))
    loads = [sum(batch.tokens for batch in mine) for mine in dealt]
    assert max(loads) - min(loads) <= max(batch.tokens for batch in batches)
    assert deal(batches, 1) == [batches]


def test_data_ranks_get_as_many_micro_batches_each() -> None:
    samples = [PackedSample(ids=[k] * 10, response_len=1, weight=0.5) for k in range(12)]
    assert [len(batch.samples) for batch in pack(samples, 1000, 4)] == [3] * 4
    assert [len(batch.samples) for batch in pack(samples, 20, 3)] == [2] * 6
    assert pack(samples, 50, 1) == pack(samples, 50)
