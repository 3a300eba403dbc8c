"""What a small model is shown of an application that has too much to list, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from apis.apps import ranking
from apis.observation import Element


def thing(tag: str, name: str, *states: str) -> Element:
    return Element(tag, name, "", 0, 0, 10, 10, ("sen", *states))


def cell(row: int, column: int, *states: str) -> Element:
    return Element(
        "table-cell", f"{chr(65 + column)}{row + 1}", "x", 40 + 80 * column, 180 + 17 * row, 80, 17, ("sen", *states)
    )


def test_calc_what_is_worked_with_comes_first() -> None:
    seen = [
        thing("menu", "File"), cell(0, 0), thing("page-tab", "Sheet1"), thing("push-button", "Add"),
        thing("text", "Name Box"), thing("push-button", "Bold", "bar"), thing("text", "Font Name", "bar"),
        thing("push-button", "Save", "bar"), thing("text", "Input line"), thing("check-menu-item", "Grid"),
    ]  # fmt: skip
    assert [e.name for e in ranking.calc(seen)] == [
        "Grid", "Name Box", "Input line", "A1", "Sheet1", "Add", "File", "Save",
    ]  # fmt: skip


@given(st.integers(1, 60), st.integers(1, 50), st.integers(0, 59), st.integers(0, 49))
def test_calc_rows_near_the_current_cell_and_the_first_are_kept(rows: int, columns: int, row: int, column: int) -> None:
    cells = [cell(r, c, *(["foc"] if (r, c) == (row, column) else [])) for r in range(rows) for c in range(columns)]
    kept = ranking.nearest_cells(cells)
    assert len(kept) <= ranking.CELLS
    assert kept == [c for c in cells if c in kept]
    if row < rows and column < columns:
        assert cells[column] in kept
        assert cells[row * columns + column] in kept
    else:
        assert cells[0] in kept


def test_calc_of_two_broad_rows_the_columns_near_the_current_one_are_kept() -> None:
    cells = [cell(r, c, *(["foc"] if (r, c) == (4, 24) else [])) for r in range(6) for c in range(26)]
    kept = ranking.nearest_cells(cells)
    assert [c.name for c in kept if c.name[1:] == "1"] == [f"{letter}1" for letter in "GHIJKLMNOPQRSTUVWXYZ"]
    assert [c.name[0] for c in kept if c.name[1:] == "5"] == list("GHIJKLMNOPQRSTUVWXYZ")
    assert len(kept) == ranking.CELLS


def test_code_menu_text_and_files_come_first_and_nothing_is_said_twice() -> None:
    seen = [
        thing("document-web", "a.txt - VS Code"), thing("push-button", "a.txt - VS Code"), thing("section", "LF"),
        thing("menu-item", ranking.APPLICATION_MENU), thing("page-tab", "a.txt"), thing("tree-item", "a.txt"),
        thing("static", "a.txt"), thing("entry", "a.txt"), thing("list-item", "fox, 1.0.0"),
        thing("menu-item", "Rename... F2"), thing("static", "F2"), thing("static", "Completed"),
    ]  # fmt: skip
    assert [f"{element.tag} {element.name}" for element in ranking.code(seen)] == [
        "menu-item Rename... F2", "entry a.txt", "list-item fox, 1.0.0", "tree-item a.txt", "page-tab a.txt",
        "push-button a.txt - VS Code", "menu-item Application Menu", "section LF", "static Completed",
    ]  # fmt: skip


VIEW = [
    thing("menu", "File"), thing("menu-item", "Slide Down"), thing("document-presentation", "talk"),
    thing("paragraph", "one"), thing("push-button", "Ellipse"), thing("push-button", "Save", "bar"),
    thing("push-button", "Bold", "bar"), thing("list-item", "Blank Slide", "bar"), thing("toggle-button", "Shadow"),
    thing("push-button", "Delete Slide"), thing("paragraph", "two"),
]  # fmt: skip


def test_impress_texts_come_first_and_of_the_tool_bars_a_few_buttons_are_left() -> None:
    assert [element.name for element in ranking.impress(VIEW)] == [
        "Slide Down", "one", "two", "Save", "Delete Slide", "File",
    ]  # fmt: skip


def test_impress_of_very_many_texts_the_first_are_kept() -> None:
    many = [thing("document-presentation", "talk"), *(thing("paragraph", str(n)) for n in range(99))]
    assert [element.name for element in ranking.impress(many)] == [str(n) for n in range(ranking.PARAGRAPHS)]


def test_impress_a_dialog_is_shown_as_it_is() -> None:
    dialog = [thing("push-button", "Help"), thing("toggle-button", "Color"), thing("push-button", "OK")]
    assert ranking.impress(dialog) == dialog


def test_writer_what_is_worked_with_comes_first() -> None:
    seen = [
        thing("menu", "File"), thing("document-text", "paper"), thing("paragraph", "one"), thing("paragraph", "two"),
        thing("push-button", "Close"), thing("push-button", "Bold", "bar"), thing("push-button", "Footnote", "bar"),
        thing("text", "Font Name", "bar"), thing("check-menu-item", "Ruler"), thing("text", "Paragraph Style"),
    ]  # fmt: skip
    assert [element.name for element in ranking.writer(seen)] == [
        "Ruler", "one", "two", "Close", "Font Name", "Paragraph Style", "File", "Bold",
    ]  # fmt: skip


def test_writer_an_empty_view_still_has_the_document() -> None:
    assert [element.name for element in ranking.writer([thing("menu", "File"), thing("document-text", "paper")])] == [
        "paper",
        "File",
    ]


@given(st.integers(0, 100), st.integers(0, 99))
def test_writer_paragraphs_around_the_caret_are_kept(count: int, current: int) -> None:
    seen = [thing("paragraph", str(at), *(["foc"] if at == current else [])) for at in range(count)]
    kept = ranking.nearest_paragraphs(seen)
    assert len(kept) == min(count, ranking.PARAGRAPHS)
    assert [int(each.name) for each in kept] == sorted(int(each.name) for each in kept)
    assert current >= count or str(current) in {each.name for each in kept}
