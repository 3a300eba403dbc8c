"""Finding the way in the file manager. Invariant: from any folder of HOME, Documents is reached step by step."""

from __future__ import annotations

from apis.actions.gui import Click
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View

DOCUMENTS = "Documents"


def to_documents(view: View) -> Move | None:
    """The next step to the folder of the task's files; None when its window shows it."""
    if view.title == DOCUMENTS:
        return None
    field, up = view.field(), view.labelled("push-button", "Parent Folder")
    if field is None or up is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if f"/{DOCUMENTS}/" in view.elements[field].text:
        return click(view, up)
    inside = view.find("icon", lambda e: e.label == DOCUMENTS)
    if inside is not None:
        return pointed(view, inside, "open"), Click(coordinates=inside, num_clicks=2)
    home = view.labelled("push-button", "Home Folder")
    return click(view, home) if home else keys("close this", "esc")
