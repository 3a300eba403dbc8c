"""What a small model is shown of a presentation, and in which order.

Invariant: pure; nothing is shown that was not observed. The texts of the slide come before menus and buttons. Of the
tool bars, which mostly draw shapes, a few buttons are left.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.observation import Element

PARAGRAPHS = 24
BUTTONS = {"Save", "Duplicate Slide", "Delete Slide", "New Slide"}
_DROPPED = {"push-button", "toggle-button", "document-presentation", "document-frame"}


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, the slide's texts, buttons for slides, menus; a dialog's elements as they come."""
    if not any(element.tag == "document-presentation" for element in elements):
        return list(elements)
    paragraphs = [element for element in elements if element.tag == "paragraph"][:PARAGRAPHS]
    others = [
        element
        for element in elements
        if element.tag != "paragraph"
        and (element.name in BUTTONS or not (element.tag in _DROPPED or "bar" in element.states))
    ]
    return sorted([*paragraphs, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return 0
    if element.tag == "paragraph":
        return 1
    return 3 if element.tag == "menu" else 2
