"""What a small model is shown of a spreadsheet."""

from hypothesis import given
from hypothesis import strategies as st

from apis.apps.calc import CELLS, nearest, ranked
from apis.observation import Element


def cell(row: int, column: int, *states: str) -> Element:
    return Element(
        "table-cell", f"{chr(65 + column)}{row + 1}", "x", 40 + 80 * column, 180 + 17 * row, 80, 17, ("sen", *states)
    )


def thing(tag: str, name: str, *states: str) -> Element:
    return Element(tag, name, "", 0, 0, 10, 10, ("sen", *states))


def test_what_is_worked_with_comes_first() -> None:
    seen = [
        thing("menu", "File"), cell(0, 0), thing("page-tab", "Sheet1"), thing("push-button", "Add"),
        thing("text", "Name Box"), thing("push-button", "Bold", "bar"), thing("text", "Font Name", "bar"),
        thing("push-button", "Save", "bar"), thing("text", "Input line"), thing("check-menu-item", "Grid"),
    ]  # fmt: skip
    assert [e.name for e in ranked(seen)] == [
        "Grid", "Name Box", "Input line", "A1", "Sheet1", "Add", "File", "Save",
    ]  # fmt: skip


@given(st.integers(1, 60), st.integers(1, 50), st.integers(0, 59), st.integers(0, 49))
def test_rows_near_the_current_cell_and_the_first_are_kept(rows: int, columns: int, row: int, column: int) -> None:
    cells = [cell(r, c, *(["foc"] if (r, c) == (row, column) else [])) for r in range(rows) for c in range(columns)]
    kept = nearest(cells)
    assert len(kept) <= CELLS
    assert kept == [c for c in cells if c in kept]
    if row < rows and column < columns:
        assert cells[column] in kept
        assert cells[row * columns + column] in kept
    else:
        assert cells[0] in kept


def test_of_two_broad_rows_the_columns_near_the_current_one_are_kept() -> None:
    cells = [cell(r, c, *(["foc"] if (r, c) == (4, 24) else [])) for r in range(6) for c in range(26)]
    kept = nearest(cells)
    assert [c.name for c in kept if c.name[1:] == "1"] == [f"{letter}1" for letter in "GHIJKLMNOPQRSTUVWXYZ"]
    assert [c.name[0] for c in kept if c.name[1:] == "5"] == list("GHIJKLMNOPQRSTUVWXYZ")
    assert len(kept) == CELLS
