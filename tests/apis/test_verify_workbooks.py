"""The check of workbooks: it accepts what is wanted, and not one cell more, less or other."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apis.tasks.verify.sheets import Sheet, Workbook
from apis.tasks.verify.verify import FileView
from apis.tasks.verify.workbooks import references, same, workbook_is

PLACES = st.builds("{}{}".format, st.sampled_from("ABC"), st.integers(1, 6))
VALUES = st.one_of(st.text("abc1", min_size=1, max_size=3), st.integers(0, 99).map(float), st.booleans())
CELLS = st.dictionaries(PLACES, VALUES, max_size=8)
START = {"A1": "item", "B1": "price", "A2": "zebra", "B2": 4.0, "A3": "olive", "B3": 6.0}
TOTAL = {**START, "B4": 10.0}


def view(*sheets: Sheet) -> FileView:
    return FileView("workbook", workbook=Workbook(sheets))


def verdict(found: Sheet, cells: dict[str, Any], formulas: dict[str, str] | None = None) -> bool:
    expected = [{"name": "Sheet1", "cells": cells, "formulas": formulas or {}}]
    return workbook_is(view(found), {"expected": expected}, {}).success


@given(CELLS)
def test_the_same_cells_are_accepted_also_after_a_trip_through_json(cells: dict[str, Any]) -> None:
    wanted = msgspec.json.decode(msgspec.json.encode(cells))
    assert verdict(Sheet("Sheet1", cells), wanted)
    assert verdict(Sheet("Sheet1", wanted), cells)


@given(CELLS, CELLS)
@pytest.mark.slow
def test_any_other_cells_are_not(cells: dict[str, Any], others: dict[str, Any]) -> None:
    assume(cells.keys() != others.keys() or any(not same(others[place], cells[place]) for place in cells))
    assert not verdict(Sheet("Sheet1", others), cells)


@given(VALUES, VALUES)
def test_kind_and_value_must_be_the_same(a: Any, b: Any) -> None:
    assert same(a, b) == same(b, a) == (type(a) is type(b) and a == b)
    assert same(a, a)


def test_a_number_is_no_text_and_no_truth_value() -> None:
    assert same(42.0, 42)
    assert not same("42", 42)
    assert not same(True, 1)
    assert not same(0.0, 1e-300)
    assert same(0.1 + 0.2, 0.3)


@pytest.mark.parametrize(
    "formula",
    [
        "=SUM(B2:B3)",
        "=B2+B3",
        "=SUM($B$3:$B$2)",
        "of:=SUM([.B2:.B3])",
        "=AVERAGE(B2:B3)*COUNT(B2:B3)",
        "=SUMPRODUCT(B2:B3)",
        "SUBTOTAL(9,B2:B3)",
        "of:=SUBTOTAL(109;[.B2:.B3])",
        "=SUM(Sheet1!B2:B3)",
        "=SUM('Sheet1'!B2,B3)",
        "of:=SUM([$Sheet1.B2:.B3])",
    ],
)
def test_a_formula_over_the_right_cells_is_accepted(formula: str) -> None:
    assert verdict(Sheet("Sheet1", TOTAL, {"B4": formula}), TOTAL, {"B4": "B2:B3"})


@pytest.mark.parametrize(
    "formula",
    [
        "=10",
        "=4+6",
        "=SUM(B2:B2)+6",
        "=SUM(B1:B3)",
        "=SUM(B2:C3)",
        '="B2:B3"',
        "=B2+10-4",
        "=10+0*COUNT(B2:B3)",
        '=VALUE("10")+(SUM(B2:B3)-SUM(B2:B3))',
        "of:=IF([.B2:.B3];10;1E1)",
        "SUBTOTAL(9,B2:B3)+10-SUM(B2:B3)",
        "",
        "=COUNT(B2:B3)",
        "=MAX(B2:B3)",
        "=SUBTOTAL(109;B2:B3)*COUNT(B2:B3)",
        "=SUM('my sheet 2'!B2,B3)",
        "_xlfn.SUMIFS(B2:B3,B2:B3,B2)+B3",
        '=SUM(B2;B3)&""',
        "=SUM(B2:B3",
    ],
)
def test_a_number_or_other_cells_in_its_place_are_not(formula: str) -> None:
    assert not verdict(Sheet("Sheet1", TOTAL, {"B4": formula}), TOTAL, {"B4": "B2:B3"})
    assert not verdict(Sheet("Sheet1", TOTAL), TOTAL, {"B4": "B2:B3"})


def test_a_formula_with_a_wrong_value_or_where_none_is_wanted_is_not() -> None:
    assert not verdict(Sheet("Sheet1", {**TOTAL, "B4": 11.0}, {"B4": "=SUM(B2:B3)"}), TOTAL, {"B4": "B2:B3"})
    assert not verdict(Sheet("Sheet1", TOTAL, {"B4": "=SUM(B2:B3)"}), TOTAL)
    assert not verdict(Sheet("Sheet1", START, {"C9": "=A1"}), START)


def test_sheets_count_with_names_and_order() -> None:
    one, two = Sheet("a", START), Sheet("b", TOTAL)
    rules = {"expected": [{"name": "a", "cells": START}, {"name": "b", "cells": TOTAL}]}
    assert workbook_is(view(one, two), rules, {}).success
    shy = Sheet("b", TOTAL, hidden=True)
    for other in ((one, shy), (two, one), (one,), (one, two, Sheet("c", {})), (one, Sheet("B", TOTAL))):
        assert not workbook_is(view(*other), rules, {}).success
    changed = workbook_is(view(one, Sheet("b", START)), rules, {})
    assert changed.reason == "sheet 2: B4 is empty"


def test_what_was_not_read_as_a_workbook_fails_with_its_reason() -> None:
    for seen in (
        FileView("refused", reason="zip bomb"),
        FileView("missing"),
        FileView("file", b"x"),
        FileView("folder"),
    ):
        told = workbook_is(seen, {"expected": []}, {})
        assert not told.success
        assert told.reason in ("zip bomb", f"it is {seen.kind}")


@given(st.text(st.sampled_from('AB:$12()[]. "+SUM'), max_size=40))
def test_any_formula_is_read_without_an_error(formula: str) -> None:
    assert all(len(column) <= 3 and row > 0 for column, row in references(formula))


def test_large_ranges_are_not_expanded() -> None:
    assert references("=SUM(A1:Z1048576)") == {("A", 1), ("Z", 1048576)}
    assert references("=SUM(A1:XFD9)") == {("A", 1), ("XFD", 9)}
    assert references("=LOG10(B2)+A1B") == {("B", 2)}


def test_a_formula_of_many_ranges_is_not_expanded_without_bound() -> None:
    formula = "=SUM(" + ",".join(f"A{n}0001:A{n + 1}0000" for n in range(1, 900)) + ")"
    found = references(formula)
    assert len(found) == 10_000 + 2 * 898
    assert {("A", 10_001), ("A", 20_000), ("A", 20_001), ("A", 9_000_000)} <= found
