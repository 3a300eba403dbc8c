"""What a small model is shown of VS Code, and in which order.

Invariant: pure; nothing is shown that was not observed. Of labels that stand inside another element's, only that one is
listed, since the tree says most texts twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from apis.observation import Element

APPLICATION_MENU = "Application Menu"  # an item that shows while no menu is open
_LABELS = {"static", "section", "heading"}
_RANKS = {"entry": 1, "text": 1, "list-item": 2, "tree-item": 3, "alert": 4, "page-tab": 5, "push-button": 6}
_OTHERS, _LABEL = 7, 8


def ranked(elements: Sequence[Element]) -> list[Element]:
    """An open menu, fields (the text above all), lists, files, tabs, buttons, and labels that say something more."""
    said = [element.label for element in elements if element.tag not in _LABELS]
    kept = [
        element
        for element in elements
        if not element.tag.startswith("document")
        and (element.tag not in _LABELS or not any(element.label in other for other in said))
    ]
    return sorted(kept, key=_rank)


def of_menu(element: Element) -> bool:
    """Whether it is an item of a menu that is open."""
    return element.tag.endswith("menu-item") and element.name != APPLICATION_MENU


def _rank(element: Element) -> int:
    if of_menu(element):
        return 0
    return _LABEL if element.tag in _LABELS else _RANKS.get(element.tag, _OTHERS)
