"""Cells by name and by place, and which of them an observation has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apis.guest.addresses import CELLS_MAX, COLUMNS, ROWS, address, chosen, column_of, letters, place_of


@given(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1))
def test_addresses_go_both_ways(row: int, column: int) -> None:
    assert place_of(address(row, column)) == (row, column)
    assert column_of(letters(column)) == column


@given(st.text(alphabet="AZXFD$:190 a\n\u0661", max_size=12))
def test_a_text_that_names_a_cell_is_its_address(text: str) -> None:
    place = place_of(text)
    assert place is None or address(*place) == text


def test_columns_go_beyond_z() -> None:
    assert [letters(n) for n in (0, 25, 26, 51, 52, 701, 702, 16_383)] == [
        "A", "Z", "AA", "AZ", "BA", "ZZ", "AAA", "XFD",
    ]  # fmt: skip
    assert place_of("XFD1048576") == (ROWS - 1, COLUMNS - 1)


def test_the_block_its_margins_and_the_current_cell_are_said() -> None:
    names = [address(*cell) for cell in chosen({(0, 0): "x", (1, 1): "y"}, list(range(9)), list(range(9)), (5, 5))]
    assert names == ["A1", "B1", "C1", "A2", "B2", "C2", "A3", "B3", "C3", "F6"]
    assert [address(*c) for c in chosen({}, list(range(9)), list(range(9)), None)][:4] == ["A1", "B1", "C1", "A2"]
    assert chosen({}, [], [], (0, 0)) == []


PLACES = st.tuples(st.integers(0, 40), st.integers(0, 30))


@given(st.dictionaries(PLACES, st.just("x"), max_size=400), PLACES)
def test_never_too_many_and_filled_ones_first(texts: dict[tuple[int, int], str], current: tuple[int, int]) -> None:
    said = chosen(texts, list(range(41)), list(range(31)), current)
    assert len(said) <= CELLS_MAX
    assert said == sorted(set(said))
    if len(texts) <= CELLS_MAX:
        assert set(texts) <= set(said)
