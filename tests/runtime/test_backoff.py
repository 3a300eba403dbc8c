"""Waits grow with each failure in a row, up to the longest."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from runtime.supervision import Backoff


def test_it_doubles_up_to_the_longest():
    backoff = Backoff(first_s=0.5, longest_s=3.0)
    assert [backoff.delay_s(failures) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert Backoff(first_s=1.0, longest_s=50.0, factor=3.0).delay_s(3) == 9.0


@given(
    failures=st.integers(0, 10**9),
    first_s=st.floats(0.0, 100.0),
    longest_s=st.floats(0.0, 1e6),
    factor=st.floats(1.0, 10.0),
)
def test_it_never_shrinks_and_never_overflows(failures: int, first_s: float, longest_s: float, factor: float):
    backoff = Backoff(first_s=first_s, longest_s=longest_s, factor=factor)
    assert 0.0 <= backoff.delay_s(failures) <= backoff.delay_s(failures + 1) <= longest_s
    assert math.isfinite(backoff.delay_s(failures))
