"""How to install and uninstall an extension of VS Code: by menus of its lists, or by its functions.

Invariant: it ends only when the editor's list of extensions, or the function's answer to the call that the task asks
for, says that it is done.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Tool, Wait, line
from apis.apps.catalogue import call
from apis.tasks.families.code import code
from apis.tasks.family import Goal
from apis.tasks.oracles import Move, View, click, keys

INSTALL, UNINSTALL = "Install Extension VSIX", "Uninstall"  # of menus
UNINSTALLED = "Uninstalled"  # a button's label, afterwards
SEARCH = "Search Extensions"  # how the field above the list of extensions is called
DONE = {"install": ("is installed", "was installed already"), "uninstall": ("is removed", "is not installed")}
RECENT = 3  # steps after which a menu's effect is no longer waited for
_DONE: Move = ("it is done", Exit(success=True))


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    if _told(view):
        return _DONE
    return _install(view) if view.goal.kind == "install" else _uninstall(view)


def by_tools(view: View) -> Move:
    """The next move with VS Code's functions."""
    return _DONE if _told(view) else (f"{view.goal.wanted} -> {view.goal.kind}", wish(view.goal))


def wish(goal: Goal) -> Tool:
    """The function that does what is asked for."""
    if goal.kind == "install":
        return call("CodeTools", "install_extension", extension_id=f"~/Documents/{goal.target}")
    return call("CodeTools", "uninstall_extension", extension_id=goal.wanted)


def _told(view: View) -> bool:
    """Whether the answer to just this call said that it is done; one with another argument tells nothing."""
    asked, ends = line(wish(view.goal)), DONE[view.goal.kind]
    return any(turn.line == asked and any(end in turn.result for end in ends) for turn in view.history)


def _install(view: View) -> Move:
    item = view.labelled("menu-item", INSTALL)
    if item is not None or code.menu(view):
        return click(view, item) if item else keys("close this", "esc")
    if _row(view) is not None:
        return _DONE
    if any(INSTALL in turn.answer for turn in view.history[-RECENT:]):
        return ("wait for the list", Wait()) if _in_list(view) else keys("look at the list", "ctrl", "shift", "x")
    file = view.find("tree-item", lambda e: e.name == view.goal.target)
    return code.to_files(view) if file is None else click(view, file, "menu", button="right")


def _uninstall(view: View) -> Move:
    item = view.labelled("menu-item", UNINSTALL)
    if item is not None or code.menu(view):
        return click(view, item) if item else keys("close this", "esc")
    asked = any(f"menu-item {UNINSTALL} " in turn.answer for turn in view.history)
    row = _row(view)
    if view.labelled("push-button", UNINSTALLED) or (asked and _in_list(view) and row is None):
        return _DONE
    if row is None:
        return ("wait for the list", Wait()) if _in_list(view) else keys("extensions -> list", "ctrl", "shift", "x")
    return click(view, row, "menu", button="right")


def _in_list(view: View) -> bool:
    return view.find("entry", lambda e: e.name.startswith(SEARCH)) is not None


def _row(view: View) -> str | None:
    """The extension that is asked for, among those that are listed."""
    publisher, _, name = view.goal.wanted.partition(".")
    return view.find("list-item", lambda e: e.name.startswith(f"{name}, ") and f"Publisher {publisher}" in e.name)
