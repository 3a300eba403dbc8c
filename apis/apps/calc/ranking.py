"""What a small model is shown of a spreadsheet, and in which order.

Invariant: pure. Only observed elements are shown. The cells left out are the farthest from the current cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from apis.observation import Element

CELLS = 40
BUTTONS = {"Save", "Sort Ascending", "Sort Descending", "Select Function"}  # kept of the tool bars
_FIELDS = {"Name Box": 0, "Input line": 1}
_ORDER = {"table-cell": 2, "page-tab": 3, "menu": 5}  # after open menus and fields, before and after the rest


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, Name Box, input line, cells, sheets, other things, menus, a few buttons of the tool bars."""
    cells = nearest([element for element in elements if element.tag == "table-cell"])
    others = [
        element
        for element in elements
        if element.tag != "table-cell" and ("bar" not in element.states or element.name in BUTTONS)
    ]
    return sorted([*cells, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return -1
    if element.tag == "text" and element.name in _FIELDS:
        return _FIELDS[element.name]
    return 6 if "bar" in element.states else _ORDER.get(element.tag, 4)


def nearest(cells: Sequence[Element]) -> list[Element]:
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
