"""How to move a file in the file manager: cut it, go to the other folder, paste it there.

Invariant: it cuts only the file that it sees selected or has just opened the menu of. It pastes only in the right
folder after such a cut, and ends only when the file shows there.
"""

from __future__ import annotations

from apis.actions.gui import Click, Exit, Hotkey, Wait, line
from apis.tasks.families.files.folders import DOCUMENTS, to_documents
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View

CUT, PASTE = Hotkey(keys=("ctrl", "x")), Hotkey(keys=("ctrl", "v"))


def into(view: View) -> Move:
    """The next move towards the file's being in the folder `wanted`."""
    return _move(view, DOCUMENTS, view.goal.wanted)


def out(view: View) -> Move:
    """The next move towards the file's being beside the folder `wanted` that it is in."""
    return _move(view, view.goal.wanted, DOCUMENTS)


def _move(view: View, origin: str, aim: str) -> Move:
    by_menu, by_button = view.route.random() < 0.4, view.route.random() < 0.6
    entry = view.labelled("menu-item", "Cut")
    if view.title not in (origin, aim):
        return to_documents(view) or keys("close this", "esc")
    icon = view.find("icon", lambda e: e.label == view.goal.target)
    if view.title == aim:
        if icon is not None:
            return pointed(view, icon, "done"), Exit(success=True)
        if entry is not None or view.find("menu-item", lambda e: True):
            return keys("close this", "esc")
        if not _was_cut(view):
            return _go(view, aim, origin, by_button)
        return ("wait for the file", Wait()) if view.did(PASTE) else keys(f"{aim} -> paste", "ctrl", "v")
    if _was_cut(view):
        return keys("close this", "esc") if entry is not None else _go(view, origin, aim, by_button)
    if entry is not None:
        right = view.has_menu_of(view.goal.target) if icon is None else "sel" in view.elements[icon].states
        cut = f"icon {view.goal.target} -> cut, {entry}"
        return (cut, click(view, entry)[1]) if right else keys("close this", "esc")
    if icon is None:
        return "wait for the files", Wait()
    selected = "sel" in view.elements[icon].states
    if by_menu:
        return click(view, icon, "menu", button="right")
    return keys(pointed(view, icon, "cut"), "ctrl", "x") if selected else click(view, icon)


def _was_cut(view: View) -> bool:
    """Whether this file was cut, by the thought that went with it: that can't be seen afterwards."""
    thought = f"icon {view.goal.target} -> cut"
    at = max((n for n, turn in enumerate(view.history) if turn.line and thought in turn.answer), default=-1)
    return at >= 0 and all(turn.line != line(CUT) for turn in view.history[at + 1 :])


def _go(view: View, here: str, there: str, by_button: bool) -> Move:
    """From one folder to the other."""
    if there == DOCUMENTS:
        up = view.labelled("push-button", "Parent Folder")
        return click(view, up) if by_button and up else keys(f"{here} -> up", "alt", "up")
    folder = view.find("icon", lambda e: e.label == there)
    if folder is None:
        return "wait for the files", Wait()
    return pointed(view, folder, "open"), Click(coordinates=folder, num_clicks=2)
