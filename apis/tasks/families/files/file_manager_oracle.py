"""How to do the file manager's tasks with mouse and keyboard.

Invariant: before it renames or removes anything it sees that the right file is selected, or has just opened its menu.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Hotkey, Type, Wait, line
from apis.tasks.families.files.folders import to_documents
from apis.tasks.oracle import click, keys
from apis.tasks.view import Move, View

NAME_DIALOGS = {"rename": "Rename File", "folder": "Creating New Folder"}
ENTRY_OF_MENU = {"rename": ("Rename",), "delete": ("Delete", "Move to Trash")}
YES = "push-button Yes"  # what the thought of confirming a deletion says


def decide(view: View) -> Move:
    """The next move."""
    by_menu, by_mouse = view.route.random() < 0.3, view.route.random() < 0.4
    kind, goal = view.goal.kind, view.goal
    if view.title == NAME_DIALOGS.get(kind):
        return _name(view, by_mouse)
    yes = view.labelled("push-button", "Yes")
    if yes is not None and kind == "delete" and view.find("label", lambda e: f"'{goal.target}'" in e.label):
        return click(view, yes) if by_mouse else keys("yes -> enter", "enter")
    if yes is not None or view.field() is None:
        return keys("close this", "esc")
    away = to_documents(view)
    if away is not None:
        return away
    if _done(view):
        return "done", Exit(success=True)
    if kind == "folder":
        return keys("new folder", "ctrl", "shift", "n")
    return _reach(view, by_menu)


def _name(view: View, by_mouse: bool) -> Move:
    """Fill in and confirm the dialog that asks for a name."""
    field, ok = view.field(), view.labelled("push-button", "OK")
    if field is None or ok is None:
        return keys("close this", "esc")
    named = view.elements[field].label
    if named == view.goal.wanted:
        return click(view, ok)
    if view.goal.kind == "rename" and named != view.goal.target:
        return keys("close this", "esc")  # the dialog is about another file
    typed = Type(coordinates=field, text=view.goal.wanted, overwrite=True, enter=not by_mouse)
    return f"{field} text -> {view.goal.wanted}", typed


def _done(view: View) -> bool:
    """What shows lags behind the disk, and icons keep old names for a while after a change.

    So what was confirmed in a dialog counts as done; and a file that can't be seen counts as gone only after some
    steps towards that, because a folder that was just opened shows no icons yet.
    """
    if _confirmed(view):
        return True
    icons = {element.label for element in view.elements.values() if element.tag == "icon"}
    if view.goal.kind == "folder":
        return view.goal.wanted in icons
    if view.find("menu-item", lambda e: True):  # an open menu covers icons
        return False
    return view.goal.target not in icons and len({turn.line for turn in view.history} - {line(Wait())}) > 1


def _confirmed(view: View) -> bool:
    if view.goal.kind == "delete":
        return any(turn.line == line(Hotkey(keys=("enter",))) or YES in turn.answer for turn in view.history)
    typed = f"text={view.goal.wanted!r}"
    lines = [turn.line or "" for turn in view.history]
    at = max((n for n, text in enumerate(lines) if typed in text), default=-1)
    return at >= 0 and line(Hotkey(keys=("esc",))) not in lines[at:]


def _reach(view: View, by_menu: bool) -> Move:
    """Open what renames or removes the target, by its context menu or by selecting it and pressing a key."""
    entry = view.find("menu-item", lambda e: e.label.startswith(ENTRY_OF_MENU[view.goal.kind]))
    icon = view.find("icon", lambda e: e.label == view.goal.target)
    if entry is not None:
        right = view.has_menu_of(view.goal.target) if icon is None else "sel" in view.elements[icon].states
        return click(view, entry) if right else keys("close this", "esc")
    if icon is None:
        return "wait for the files", Wait()
    selected = "sel" in view.elements[icon].states
    if by_menu:
        return click(view, icon, "menu", button="right")
    if not selected:
        return click(view, icon)
    return keys("rename", "f2") if view.goal.kind == "rename" else keys("delete", "delete")
