"""How to do the text editor's tasks with mouse and keyboard.

Invariant: the oracle decides from the text that shows. It ends only when the window shows the wanted text without the
mark of unsaved changes.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Hotkey, Type
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View

UNSAVED = "*"  # the title begins with it


def decide(view: View) -> Move:
    """The next move."""
    select_first, save_by_menu = view.route.random() < 0.35, view.route.random() < 0.35
    field, menu = view.field(), view.find("menu-item", lambda e: True)
    if field is None:
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") == view.goal.wanted:
        if not view.title.startswith(UNSAVED):
            return "saved -> done", Exit(success=True)
        if menu is not None:
            save = view.find("menu-item", lambda e: e.label.strip() == "Save")
            return click(view, save) if save else keys("close this", "esc")
        file_menu = view.labelled("menu", "File")
        return click(view, file_menu, "save") if save_by_menu and file_menu else keys("save", "ctrl", "s")
    if menu is not None:
        return keys("close this", "esc")
    return _write(view, field, select_first)


def _write(view: View, field: str, select_first: bool) -> Move:
    old = view.goal.files[0][1]
    added = (
        view.goal.wanted.removeprefix(old) if view.goal.kind == "append" else view.goal.wanted.removesuffix(old[:-1])
    )
    untouched = view.elements[field].text == old
    if view.goal.kind == "append" and untouched:
        if view.did(Hotkey(keys=("ctrl", "end"))):
            return "at the end -> add", Type(text=added)
        return keys("go to the end", "ctrl", "end")
    if view.goal.kind == "prepend" and untouched:
        if view.did(Hotkey(keys=("ctrl", "home"))):
            return "at the top -> insert", Type(text=added.removesuffix("\n"), enter=True)
        return keys("go to the top", "ctrl", "home")
    if not select_first:
        return f"{field} text -> replace", Type(coordinates=field, text=view.goal.wanted, overwrite=True)
    if view.did(Hotkey(keys=("ctrl", "a"))):
        return "all selected -> replace", Type(text=view.goal.wanted)
    return keys("select all", "ctrl", "a")
