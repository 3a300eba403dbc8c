"""Which cells are said."""

from hypothesis import given
from hypothesis import strategies as st

from apis.guest.addresses import CELLS_MAX, address, chosen


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
