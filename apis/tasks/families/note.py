"""What families with a note in the text editor have in common: read it, keep it, go to the other window.

Invariant: an oracle acts on a note only after it has quoted it. The other window hides the note.
"""

from __future__ import annotations

from apis.actions.gui import Quote, line
from apis.tasks.oracle import keys, pointed, switch
from apis.tasks.view import Move, View

EDITOR = "text_editor"


def noted(view: View, says: str) -> bool:
    """Whether the note's text `says` was quoted before."""
    return any(turn.line == line(Quote(content=says)) for turn in view.history)


def read(view: View, note: str, says: str) -> Move:
    """Go to the file `note` in the editor, and quote what it says."""
    if view.observation.app != EDITOR:
        return switch(view, EDITOR, note)
    field = view.field()
    if field is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") != says:
        return keys("undo", "ctrl", "z")
    return pointed(view, field, "keep"), Quote(content=says)
