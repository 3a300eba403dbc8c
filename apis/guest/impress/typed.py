"""Impress: what the accessibility bus is told of the selected box, which is right even while its text is typed into.

Invariant: only reads, so neither caret nor selection moves; where it isn't sure which box it is, nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from com.sun.star.accessibility.AccessibleRole import DOCUMENT_PRESENTATION, PARAGRAPH
from com.sun.star.accessibility.AccessibleStateType import SELECTED
from com.sun.star.uno import Exception as UnoError

DEPTH = 4  # of the slide's view below the window
MOST = 150  # boxes, or parts of one, for each takes time


def lines(window: Any) -> list[list[str]]:
    """The paragraphs of each part of the one box that is selected."""
    try:
        shown = _slide(window.getAccessibleContext())
        boxes = _below(shown, MOST) if shown is not None else ()
        selected = [box for box in boxes if box.getAccessibleStateSet().contains(SELECTED)]
        return list(_parts(selected[0])) if len(selected) == 1 else []
    except UnoError:  # it lags behind what was removed just now
        return []


def _slide(told: Any) -> Any:
    for _ in range(DEPTH):
        if told is None or told.getAccessibleRole() == DOCUMENT_PRESENTATION:
            return told
        told = next(_below(told, 1), None)
    return None


def _parts(told: Any) -> Iterator[list[str]]:
    """A box itself, or else in their order the cells of a table or the members of a group."""
    below = list(_below(told, MOST))
    found = [str(each.getText()) for each in below if each.getAccessibleRole() == PARAGRAPH]
    if found or not below:
        yield found
    else:
        for each in below:
            yield from _parts(each)


def _below(told: Any, most: int) -> Iterator[Any]:
    for at in range(min(told.getAccessibleChildCount(), most)):
        child = told.getAccessibleChild(at)
        if child is not None:
            yield child.getAccessibleContext()
