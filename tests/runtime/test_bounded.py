"""Pieces are joined up to a bound, and none is asked for beyond it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from runtime.http import joined


class Pieces:
    """Gives one piece after the other, and counts them."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.given = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            self.given += 1
            yield piece


@given(st.lists(st.binary(max_size=5), max_size=9), st.integers(0, 30))
async def test_all_or_nothing(pieces: list[bytes], most: int) -> None:
    source = Pieces(pieces)
    whole = b"".join(pieces)
    assert await joined(source, most) == (whole if len(whole) <= most else None)
    assert sum(map(len, pieces[: source.given - 1])) <= most
