"""What families on VS Code have in common: a window that shows the folder Documents, and what oracles read from it.

Invariant: the editor's own account of its open files says where the caret is and whether a file is saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from apis.actions.gui import Action, Hotkey, Wait, line
from apis.applications import app_named
from apis.apps.code import of_menu
from apis.tasks.family import DOCUMENTS
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import Step, launch, put, raised
from apis.tasks.view import Move, View

CODE = "code"
SAVE = Hotkey(keys=("ctrl", "s"))
_ACTIVE = re.compile(r"^\* ~/Documents/([^\s/]+), line (\d+), character (\d+)(, not saved)?$", re.MULTILINE)
_HARMLESS = (line(Wait()), line(Hotkey(keys=("esc",))))


@dataclass(frozen=True)
class Place:
    """The file of Documents in front, and the caret in it, counted from 1."""

    name: str
    line: int
    character: int
    dirty: bool  # changed since it was saved

    def starts(self, number: int) -> bool:
        """Whether the caret stands before the first character of line `number`."""
        return (self.line, self.character) == (number, 1)


def shown(files: Iterable[tuple[str, str]]) -> list[Step]:
    """Put files (path in the guest, URL) there and show Documents in VS Code."""
    # VS Code starts in HOME, so that the folder is found whatever HOME is called.
    folder = DOCUMENTS.rpartition("/")[2]
    return [*put(files), launch(*app_named(CODE).argv, folder), raised(f"{folder} - VS Code")]


def place(view: View) -> Place | None:
    """Where the caret is; None where no file of Documents is in front."""
    found = _ACTIVE.search(view.observation.info)
    return Place(found[1], int(found[2]), int(found[3]), bool(found[4])) if found else None


def menu(view: View) -> bool:
    """Whether a menu is open."""
    return any(map(of_menu, view.elements.values()))


def to_files(view: View) -> Move:
    """Show the list of files, or wait for it."""
    tab = view.find("page-tab", lambda e: e.name.startswith("Explorer") and "sel" not in e.states)
    return click(view, tab) if tab else ("wait for the files", Wait())


def did_last(view: View, action: Action) -> bool:
    """Whether nothing but waiting and Escape came after `action`."""
    did = (turn.line or "" for turn in reversed(view.history))
    return next((step for step in did if step and step not in _HARMLESS), "") == line(action)


def save(view: View) -> Move:
    """Save, and wait for the file once; a busy editor says later that it is written."""
    return ("wait for the file", Wait()) if view.did(SAVE) else keys("all there -> save", *SAVE.keys)
