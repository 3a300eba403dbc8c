"""Cells by name, and which of them are said."""

from hypothesis import given
from hypothesis import strategies as st

from apis.guest.screen.grid import CELLS_MAX, address, chosen, place_of, range_of


@given(st.integers(0, 999_999), st.integers(0, 16_383))
def test_addresses_go_both_ways(row: int, column: int) -> None:
    assert place_of(address(row, column)) == (row, column)
    assert place_of(f"{address(row, column)}:ZZ9") == (row, column)


def test_what_is_no_address() -> None:
    assert [place_of(text) for text in ("", "A0", "SUM", "ABCD1", "a1", "7")] == [None] * 6
    assert [address(0, column) for column in (0, 25, 26, 701, 702)] == ["A1", "Z1", "AA1", "ZZ1", "AAA1"]


def test_ranges() -> None:
    assert range_of("B2:AA10") == ((1, 1), (9, 26))
    assert [range_of(text) for text in ("B2", "B2:", ":B2", "SUM:B2")] == [None] * 4


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
