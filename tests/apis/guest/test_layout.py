"""Spare keys for signs that the layout lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.guest.screen.layout import SHIFT_L, Layout, runs

FIRST = 8
MEDIA = 0x1008FF41
ROWS = [[0, 0], [0x61, 0x41], [SHIFT_L, 0], [MEDIA, 0], [0, 0], [0x31, 0x21, MEDIA]]
SPARE = 3 * 2
signs = st.lists(st.integers(0x1004E00, 0x1004E10), max_size=SPARE * 5)


def test_the_layouts_own_keys_are_not_lent() -> None:
    layout = Layout(FIRST, ROWS)
    assert layout.spare == SPARE
    assert set(layout.bind([0x1004E00 + at for at in range(SPARE)])) == {8, 11, 12}
    assert [layout.place(keysym) for keysym in (0x61, 0x41, 0x21)] == [(9, False), (9, True), (13, True)]


@pytest.mark.slow
@given(st.lists(signs, max_size=6))
def test_a_part_has_a_key_for_each_sign_and_nothing_gives_way_unsaid(texts: list[list[int]]) -> None:
    layout = Layout(FIRST, ROWS)
    keys: dict[int, list[int]] = {}  # what the server has
    typed: dict[int, tuple[int, bool]] = {}  # where signs were typed
    for text in texts:
        at = 0
        while at < len(text):
            part = text[at : at + layout.part(text[at:])]
            assert part
            may_change = layout.gives_way(part)
            for first, rows in runs(layout.bind(part)):
                keys |= {first + number: list(row) for number, row in enumerate(rows)}
            stays = {old: place for old, place in typed.items() if keys[place[0]][place[1]] == old}
            assert stays == typed or may_change
            typed = stays
            for keysym in part:
                code, shifted = typed[keysym] = layout.place(keysym)
                assert keys[code][shifted] == keysym
            at += len(part)


def test_a_layout_that_is_read_again_keeps_what_was_bound() -> None:
    layout = Layout(FIRST, ROWS)
    bound = layout.bind([0x1004E00, 0x1004E01, 0x1004E02])
    rows = [[*bound.get(FIRST + at, row), 0] for at, row in enumerate(ROWS)]
    again = Layout(FIRST, rows, layout)
    assert again.spare == SPARE
    assert not again.bind([0x1004E00, 0x1004E01, 0x1004E02])
    rows[0] = [0x7A, 0x5A]  # another program took a key
    less = Layout(FIRST, rows, again)
    assert less.spare == SPARE - 2
    assert less.bind([0x1004E00])
    assert less.place(0x5A) == (FIRST, True)
