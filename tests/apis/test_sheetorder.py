"""What a small model is shown of a spreadsheet."""

from hypothesis import given
from hypothesis import strategies as st

from apis.observation import Element
from apis.sheetorder import CELLS, nearest, sheet_first


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
    assert [e.name for e in sheet_first(seen)] == [
        "Grid", "Name Box", "Input line", "A1", "Sheet1", "Add", "File", "Save",
    ]  # fmt: skip


@given(st.integers(1, 60), st.integers(1, 50), st.integers(0, 59))
def test_rows_near_the_current_cell_and_the_first_are_kept(rows: int, columns: int, current: int) -> None:
    cells = [cell(r, c, *(["foc"] if (r, c) == (current, 0) else [])) for r in range(rows) for c in range(columns)]
    kept = nearest(cells)
    assert len(kept) <= max(CELLS, 1)
    assert kept == [c for c in cells if c in kept]
    assert cells[0] in kept
    if current < rows and 2 * columns <= CELLS:
        assert any("foc" in c.states for c in kept)
