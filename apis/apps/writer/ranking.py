"""What a small model is shown of a text document, and in which order.

Invariant: pure. Only observed elements are shown. The paragraphs left out are the farthest from the caret.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.observation import Element

PARAGRAPHS = 24
BUTTONS = {  # kept of the tool bars
    "Save", "Bold", "Italic", "Underline", "Strikethrough", "Left", "Center", "Right", "Justified",
}  # fmt: skip
FIELDS = {"Paragraph Style", "Font Name", "Font Size"}


def ranked(elements: Sequence[Element]) -> list[Element]:
    """Open menus, paragraphs, other things, the fields of looks, menus, a few buttons of the tool bars."""
    paragraphs = nearest([element for element in elements if element.tag == "paragraph"])
    others = [
        element
        for element in elements
        if element.tag != "paragraph" and (element.name in BUTTONS | FIELDS or "bar" not in element.states)
    ]
    if paragraphs:
        others = [element for element in others if element.tag != "document-text"]
    return sorted([*paragraphs, *others], key=_rank)


def _rank(element: Element) -> int:
    if element.tag.endswith("menu-item"):
        return 0
    if element.tag == "paragraph":
        return 1
    if element.tag == "text" and element.name in FIELDS:
        return 3
    if "bar" in element.states:
        return 5
    return 4 if element.tag == "menu" else 2


def nearest(paragraphs: Sequence[Element]) -> list[Element]:
    """At most `PARAGRAPHS` of them, in their order, around the one with the caret or from the first on."""
    now = next((at for at, each in enumerate(paragraphs) if "foc" in each.states), 0)
    start = max(0, min(now - PARAGRAPHS // 2, len(paragraphs) - PARAGRAPHS))
    return list(paragraphs[start : start + PARAGRAPHS])
