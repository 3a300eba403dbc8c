"""Tasks on the file manager: rename a file among others, make a folder, delete a file.

Invariant: the two splits share no template and, since words are split by their hash, no name and no text. A task is
solved only if every other file is as it was and none was added. The oracle renames or removes only a file that it sees
selected or has just opened the menu of.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Click, Exit, Hotkey, Type, Wait, line
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

FOLDER = "Documents"
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "rename": {
        TRAIN: (
            "Rename the file {old} to {new}",
            "Change the name of {old} to {new}",
            "Give {old} the new name {new}",
            "The file {old} should be called {new}",
            "{old} has the wrong name, call it {new}",
            "Rename {old}, its new name is {new}",
            "Call the file {old} {new} from now on",
            "Let {old} be named {new}",
            "{old} gets the name {new}",
            "Set the name of the file {old} to {new}",
            "The right name for {old} is {new}, change it",
            "{new} should be the name of the file {old}",
            "The file now called {old} should have the name {new}",
            "Use {new} as the new name of {old}",
            "Please rename {old} so that it is called {new}",
        ),
        HELD_OUT: (
            "Rename {old}, it should be called {new}",
            "Give the file {old} the name {new}",
            "Change the wrong name {old} to {new}",
        ),
    },
    "folder": {
        TRAIN: (
            "Make a new folder named {new}",
            "Create a folder called {new}",
            "A folder {new} is needed here",
            "Add a folder with the name {new}",
            "New folder {new}",
            "Make the folder {new}",
            "There should be a folder {new} here",
            "Put a new folder here, its name is {new}",
            "We need one more folder, call it {new}",
            "Please make a folder and name it {new}",
            "Let there be a new folder with the name {new}",
            "{new} should be a folder here, create it",
            "Create one folder here and call it {new}",
            "A new folder is missing, it is called {new}",
            "Set up the folder {new} beside these files",
        ),
        HELD_OUT: (
            "Create a new folder with the name {new}",
            "Make a folder called {new}",
            "Add a new folder {new} here",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete the file {old}",
            "Remove {old} from this folder",
            "Throw away {old}",
            "The file {old} is not needed, delete it",
            "{old} should go, remove it",
            "Delete {old}, keep the other files",
            "Get rid of the file {old}",
            "Take {old} away from here",
            "Please delete {old}",
            "Nobody needs {old}, throw it away",
            "{old} has no use any more, delete it",
            "The file {old} can go",
            "Erase {old} and nothing else",
            "There should be no file {old} here",
            "Of these files only {old} should be removed",
        ),
        HELD_OUT: ("Delete {old} from this folder", "Throw the file {old} away", "{old} is not needed, remove it"),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    count = random.choice((3, 4, 5))
    drawn = words(random, split, 2 * count + 1)
    names = [text_file(random, stem) for stem in drawn[:count]]
    target = random.choice(names)
    wanted = drawn[-1] if kind == "folder" else text_file(random, drawn[-1])
    files = tuple(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True))
    end: dict[str, str | None] = {name: text for name, text in files if kind == "folder" or name != target}
    if kind != "delete":
        end[wanted] = None if kind == "folder" else dict(files)[target]
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(old=target, new=wanted),
        target=target if kind != "folder" else "",
        wanted=wanted if kind != "delete" else "",
        files=files,
        end=tuple(end.items()),
    )


def to_documents(view: View) -> Move | None:
    """The next step to the folder of the task's files; None when its window shows it."""
    if view.title == FOLDER:
        return None
    field, up = view.field(), view.labelled("push-button", "Parent Folder")
    if field is None or up is None or view.find("menu-item", lambda e: True):
        return keys("close this", "esc")
    if f"/{FOLDER}/" in view.elements[field].text:
        return click(view, up)
    inside = view.find("icon", lambda e: e.label == FOLDER)
    if inside is not None:
        return pointed(view, inside, "open"), Click(coordinates=inside, num_clicks=2)
    home = view.labelled("push-button", "Home Folder")
    return click(view, home) if home else keys("close this", "esc")


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


FAMILY = of_files("file_manager", ("file_manager",), TEMPLATES, goal, opened=lambda _: [DOCUMENTS], decide=decide)
