"""What a small model sees first of an application that has too much to list: by application, an order of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from apis.observation import Element

CELLS, PARAGRAPHS = 40, 24  # that are listed, at the most
CALC_BUTTONS = {"Save", "Sort Ascending", "Sort Descending", "Select Function"}  # kept of the tool bars
CALC_FIELDS = {"Name Box": 0, "Input line": 1}
CALC_ORDER = {"table-cell": 2, "page-tab": 3, "menu": 5}  # after open menus and fields, before and after the rest
IMPRESS_BUTTONS = {"Save", "Duplicate Slide", "Delete Slide", "New Slide"}
IMPRESS_DROPPED = {"push-button", "toggle-button", "document-presentation", "document-frame"}
WRITER_BUTTONS = {
    "Save", "Bold", "Italic", "Underline", "Strikethrough", "Left", "Center", "Right", "Justified",
}  # fmt: skip
WRITER_FIELDS = {"Paragraph Style", "Font Name", "Font Size"}
APPLICATION_MENU = "Application Menu"  # an item of VS Code's that shows while no menu is open
CODE_LABELS = {"static", "section", "heading"}
CODE_ORDER = {"entry": 1, "text": 1, "list-item": 2, "tree-item": 3, "alert": 4, "page-tab": 5, "push-button": 6}


def _of(tag: str, elements: Sequence[Element]) -> list[Element]:
    return [element for element in elements if element.tag == tag]


def calc(elements: Sequence[Element]) -> list[Element]:
    """Open menus, Name Box, input line, cells, sheets, other things, menus, a few buttons of the tool bars."""
    others = [e for e in elements if e.tag != "table-cell" and ("bar" not in e.states or e.name in CALC_BUTTONS)]
    return sorted([*nearest_cells(_of("table-cell", elements)), *others], key=_calc_rank)


def _calc_rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return -1
    if element.tag == "text" and element.name in CALC_FIELDS:
        return CALC_FIELDS[element.name]
    return 6 if "bar" in element.states else CALC_ORDER.get(element.tag, 4)


def nearest_cells(cells: Sequence[Element]) -> list[Element]:
    """At most `CELLS` cells in reading order: the first row, then whole rows from the current cell's outwards.

    Where the first row and the current one do not both fit, each is shown by its cells nearest to the current column.
    """
    if len(cells) <= CELLS:
        return list(cells)
    rows = [list(row) for _, row in groupby(sorted(cells, key=lambda cell: (cell.y, cell.x)), key=lambda cell: cell.y)]
    now = next((at for at, row in enumerate(rows) if any("foc" in cell.states for cell in row)), 0)
    both = sorted({0, now})
    if sum(len(rows[at]) for at in both) > CELLS:
        x = next((cell.x for cell in rows[now] if "foc" in cell.states), rows[now][0].x)
        return [cell for at in both for cell in _around(x, rows[at], CELLS // len(both))]
    kept: list[int] = []
    left = CELLS
    for at in sorted(range(len(rows)), key=lambda at: (at != 0, abs(at - now), at)):
        if len(rows[at]) > left:
            break
        kept.append(at)
        left -= len(rows[at])
    return [cell for at in sorted(kept) for cell in rows[at]]


def _around(x: int, row: Sequence[Element], count: int) -> list[Element]:
    """The `count` cells of a row that are nearest to a place, from left to right."""
    return sorted(sorted(row, key=lambda cell: abs(cell.x - x))[:count], key=lambda cell: cell.x)


def impress(elements: Sequence[Element]) -> list[Element]:
    """Open menus, the slide's texts, buttons for slides, menus; a dialog's elements as they come."""
    if not _of("document-presentation", elements):
        return list(elements)
    others = [
        e
        for e in elements
        if e.tag != "paragraph" and (e.name in IMPRESS_BUTTONS or not (e.tag in IMPRESS_DROPPED or "bar" in e.states))
    ]
    return sorted([*_of("paragraph", elements)[:PARAGRAPHS], *others], key=_text_rank)


def writer(elements: Sequence[Element]) -> list[Element]:
    """Open menus, paragraphs, other things, the fields of looks, menus, a few buttons of the tool bars."""
    paragraphs = nearest_paragraphs(_of("paragraph", elements))
    kept = WRITER_BUTTONS | WRITER_FIELDS
    others = [e for e in elements if e.tag != "paragraph" and (e.name in kept or "bar" not in e.states)]
    if paragraphs:
        others = [element for element in others if element.tag != "document-text"]
    return sorted([*paragraphs, *others], key=_writer_rank)


def _text_rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return 0
    return {"paragraph": 1, "menu": 4}.get(element.tag, 2)


def _writer_rank(element: Element) -> int:
    rank = _text_rank(element)
    if rank > 1 and element.tag == "text" and element.name in WRITER_FIELDS:
        return 3
    return 5 if rank > 1 and "bar" in element.states else rank


def nearest_paragraphs(paragraphs: Sequence[Element]) -> list[Element]:
    """At most `PARAGRAPHS` of them, in their order, around the one with the caret or from the first on."""
    now = next((at for at, each in enumerate(paragraphs) if "foc" in each.states), 0)
    start = max(0, min(now - PARAGRAPHS // 2, len(paragraphs) - PARAGRAPHS))
    return list(paragraphs[start : start + PARAGRAPHS])


def code(elements: Sequence[Element]) -> list[Element]:
    """An open menu, fields (the text above all), lists, files, tabs, buttons, and labels that say something more.

    The tree says most texts twice: of labels within another element's only that one is listed.
    """
    labels = [element.label for element in elements if element.tag not in CODE_LABELS]
    kept = [
        element
        for element in elements
        if not element.tag.startswith("document")
        and (element.tag not in CODE_LABELS or not any(element.label in other for other in labels))
    ]
    return sorted(kept, key=_code_rank)


def of_menu(element: Element) -> bool:
    """Whether it is an item of a menu that is open."""
    return element.tag.endswith("menu-item") and element.name != APPLICATION_MENU


def _code_rank(element: Element) -> int:
    if of_menu(element):
        return 0
    return 8 if element.tag in CODE_LABELS else CODE_ORDER.get(element.tag, 7)


# By the name of an application's folder.
RANKED: dict[str, Callable[[Sequence[Element]], list[Element]]] = {
    "calc": calc, "writer": writer, "impress": impress, "code": code,
}  # fmt: skip
