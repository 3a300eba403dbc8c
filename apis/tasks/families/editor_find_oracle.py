"""How to replace a word everywhere in the text editor: by its dialog, or by writing the text anew.

Invariant: it ends only when the window shows the wanted text without the mark of unsaved changes; the dialog's button
is pressed only while both its fields say what they should.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Hotkey, Type
from apis.tasks.families.editor.text_editor_oracle import UNSAVED
from apis.tasks.oracles import Move, View, click, keys, pointed

DIALOG = "Find and Replace"


def decide(view: View) -> Move:
    """The next move."""
    by_dialog, save_by_menu, select_first = (view.route.random() < part for part in (0.75, 0.2, 0.3))
    if view.title == DIALOG:
        return _dialog(view)
    field, menu = view.field(), view.find("menu-item", lambda e: True)
    if field is None:
        return keys("close this", "esc")
    shown = view.elements[field].text.rstrip("\n")
    if shown == view.goal.wanted:
        if not view.title.startswith(UNSAVED):
            return "saved -> done", Exit(success=True)
        if menu is not None:
            save = view.find("menu-item", lambda e: e.label.strip() == "Save")
            return click(view, save) if save else keys("close this", "esc")
        file_menu = view.labelled("menu", "File")
        return (
            click(view, file_menu, "save")
            if save_by_menu and not by_dialog and file_menu
            else keys("save", "ctrl", "s")
        )
    if menu is not None:
        return keys("close this", "esc")
    if by_dialog and shown == view.goal.files[0][1].rstrip("\n"):
        return keys(pointed(view, field, "replace"), "ctrl", "r")
    if not select_first:
        return f"{field} text -> replace", Type(coordinates=field, text=view.goal.wanted, overwrite=True)
    if view.did(Hotkey(keys=("ctrl", "a"))):
        return "all selected -> replace", Type(text=view.goal.wanted)
    return keys("select all", "ctrl", "a")


def _dialog(view: View) -> Move:
    old, new = view.goal.words
    if any(window.title.startswith(UNSAVED) for window in view.observation.windows):
        return keys("replaced -> close", "esc")
    fields = [name for name, element in view.elements.items() if element.tag == "text" and element.editable]
    every = view.labelled("check-box", "Replace all")
    button = view.labelled("push-button", "Replace")
    if len(fields) != 2 or every is None or button is None:
        return keys("close this", "esc")
    if [view.elements[name].text for name in fields] != [old, new]:
        return f"{fields[0]} text -> {old}, {new}", Type(coordinates=fields[0], text=f"{old}\t{new}", overwrite=True)
    if view.elements[button].label != "Replace All":
        return click(view, every)
    return click(view, button)
