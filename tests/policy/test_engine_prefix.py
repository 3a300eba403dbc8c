"""The prefix index never lies about what a block holds, and never outgrows its pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.engine.cache import PrefixIndex

BLOCK = 2
IDS = st.lists(st.integers(0, 2), max_size=12)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 1), IDS),
        st.tuples(st.just("match"), st.integers(0, 1), IDS),
        st.tuples(st.just("drop"), st.integers(0, 1), st.just([])),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(blocks=st.integers(1, 6), ops=OPS)
def test_found_blocks_hold_exactly_the_prefix(blocks, ops):
    index = PrefixIndex(blocks, BLOCK)
    pool: dict[int, tuple[int, tuple[int, ...]]] = {}  # block -> weights, all tokens up to its end
    for op, weights, ids in ops:
        if op == "drop":
            index.drop(weights)
            assert index.match(weights, [0] * 12, 12) == []
        elif op == "insert":
            first, new = index.insert(weights, ids)
            for number, block in enumerate(new, first):
                pool[block] = (weights, tuple(ids[: (number + 1) * BLOCK]))
            whole = min(len(ids) // BLOCK, blocks)
            assert len(index.match(weights, ids, whole * BLOCK)) == whole
        else:
            found = index.match(weights, ids, len(ids))
            for number, block in enumerate(found):
                assert pool[block] == (weights, tuple(ids[: (number + 1) * BLOCK]))
        assert len(index) <= blocks


def test_limit_keeps_the_last_token_to_be_computed():
    index = PrefixIndex(8, BLOCK)
    index.insert(0, [1, 2, 3, 4])
    assert len(index.match(0, [1, 2, 3, 4], 3)) == 1
