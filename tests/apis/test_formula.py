"""Formulas are worked out from the cells, and what is not understood has no value."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.tasks.verify.formula import FormulaError, evaluate

CELLS = {"A1": "item", "B2": 4.0, "B3": 6.0, "B4": True, "C2": 0.5, "AA10": 7.0}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("=SUM(B2:B3)", 10),
        ("of:=SUM([.B2:.B3])", 10),
        ("=SUM(A1:C3)", 10.5),
        ("=SUM(B2;B3;-1)", 9),
        ("=B2+B3*2", 16),
        ("=(B2+B3)*2", 20),
        ("=-B2^2", 16),
        ("=B3/B2-C2%", 1.495),
        ("=AVERAGE($B$2:B$3)", 5),
        ("=COUNT(A1:B4)", 2),
        ("=COUNTA(A1:B4)", 4),
        ("=MAX(B2:B3)-MIN(B2:B3)", 2),
        ("=PRODUCT(B2:B3)", 24),
        ("=SUBTOTAL(109,B2:B3)", 10),
        ("=SUBTOTAL(1;B2:B3)", 5),
        ("=SUMPRODUCT(B2:B3;B2:B3)", 52),
        ("=ABS(B2-B3)", 2),
        ("=AA10", 7),
        ("=D9", 0),
        ("=Plums!B2", 4),
        ("of:=SUM([$Plums.B2:.B3])", 10),
        ("= SUM( B2 : B3 )".replace(" : ", ":"), 10),
    ],
)
def test_it_comes_to(formula: str, value: float) -> None:
    assert math.isclose(evaluate(formula, CELLS, "Plums"), value)


@pytest.mark.parametrize(
    "formula",
    [
        "", "=", "=B2+", "=SUM(B2:B3", "=)", "=A1", "=A1+B2", "=B2/D9", "=SUM(Pears!B2)", "='a b'!B2", "=FOO(B2)",
        "=SUBTOTAL(3,B2)", "=SUBTOTAL()", "=ABS()", "=ABS(B2:B3)", '="10"', "=B2&B3", "=AVERAGE(A1)", "=B2 B3",
        "=10^400", "=(-8)^(1/3)", "=" + "(" * 500 + "B2" + ")" * 500, "=SUM(A1:ZZ9999)", "=SUM(B2)" * 500, "=NaN",
        "=B0", "=SUMPRODUCT(B2:B3;B2)", "=SUM(A1:Z100)" + "+SUM(A1:Z100)" * 40,
    ],
)  # fmt: skip
def test_what_is_not_understood_has_no_value(formula: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(formula, CELLS, "Plums")


@given(st.text(st.sampled_from("SUMB23:;,()+-*/^%.$[]'!AX =10"), max_size=60))
def test_any_text_has_a_number_or_a_reason(formula: str) -> None:
    with contextlib.suppress(FormulaError):
        assert isinstance(evaluate(formula, CELLS, "Plums"), float)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6))
def test_a_sum_is_that_of_its_cells(values: list[int]) -> None:
    cells = {f"B{row}": float(value) for row, value in enumerate(values, 2)}
    last = len(values) + 1
    assert evaluate(f"=SUM(B2:B{last})", cells) == sum(values)
    assert evaluate("=" + "+".join(cells), cells) == sum(values)
