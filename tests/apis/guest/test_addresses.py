"""Cells by name and by place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.guest.addresses import COLUMNS, ROWS, address, column_of, letters, place_of, range_of


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


@pytest.mark.parametrize(
    "text", ["", "A0", "SUM", "ABCD1", "a1", "7", "$A$1", "A1:B2", "XFE1", "ZZZ9", "A1048577", "A9999999", "A1\n"]
)
def test_what_is_no_address(text: str) -> None:
    assert place_of(text) is None


def test_ranges() -> None:
    assert range_of("B2:AA10") == ((1, 1), (9, 26))
    assert [range_of(text) for text in ("B2", "B2:", ":B2", "SUM:B2")] == [None] * 4
