"""The prefix index: it never lies about what a block holds, never outgrows its pool, and finds an episode's prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.observation import Element, Observation, Window
from apis.prompts.compact import render_compact
from apis.prompts.text import Turn
from apis.tasks.registry import task
from policy.base import MODEL
from policy.engine.cache import PrefixIndex
from policy.tokenizer import Tokenizer

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


def looked(text: str) -> Observation:
    window = Window(number=7, wm_class="Mousepad", title="plum.txt - Mousepad", active=True)
    field = Element(tag="text", name="", text=text, x=1, y=47, w=1278, h=670, states=("sen", "edt"), window=0)
    return Observation(windows=(window,), elements=(field,))


def test_an_episodes_next_step_reuses_ever_more_of_its_prefix() -> None:
    tokenizer, instruction = Tokenizer.load(MODEL), task("text_editor/train/7").instruction
    turn = Turn(answer="select all", line="Agent.hotkey(keys=['ctrl', 'a'])", result="Hotkey Success")
    prompts = [
        render_compact(instruction, [], looked("old"), None),
        render_compact(instruction, [turn], looked("old"), turn.result),
        render_compact(instruction, [turn, turn], looked("new"), turn.result),
    ]
    index, cached = PrefixIndex(1000, 8), []
    for ids in map(tokenizer.prompt_ids, prompts):
        cached.append(len(index.match(0, ids, len(ids) - 1)))
        index.insert(0, ids)
    assert 0 == cached[0] < cached[1] < cached[2]
