"""Tasks on the file manager: move a file into a folder that is there.

Invariant: a task is solved only if the file lies in the folder and everything else is as it was. The oracle cuts only
the file that it sees selected or has just opened the menu of. It pastes only in the right folder after such a cut, and
ends only when the file shows there.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Click, Exit, Hotkey, Wait, line
from apis.tasks.families.files.file_manager import FOLDER, to_documents
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

CUT, PASTE = Hotkey(keys=("ctrl", "x")), Hotkey(keys=("ctrl", "v"))
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "into": {
        TRAIN: (
            "Move {file} into the folder {folder}",
            "Put the file {file} into {folder}",
            "{file} belongs in the folder {folder}",
            "The file {file} should be in the folder {folder}",
            "Move the file {file} to {folder}",
            "Take {file} and put it in the folder {folder}",
            "{folder} is the right folder for {file}, move it there",
            "Please move {file}, it should lie in {folder}",
            "Let {file} lie in the folder {folder}",
            "Bring the file {file} into {folder}",
            "Cut {file} here and paste it in {folder}",
            "Store {file} in the folder {folder}, not here",
            "The right place of {file} is the folder {folder}",
            "File {file} away in {folder}",
            "In the folder {folder} should lie {file}, move it",
            "{file} lies in the wrong place, move it to the folder {folder}",
        ),
        HELD_OUT: (
            "Move the file {file} into {folder}",
            "Put {file} in the folder {folder}",
            "The file {file} belongs in {folder}, move it",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    count, folders = random.choice((2, 3, 4)), random.choice((1, 1, 2))
    drawn = words(random, split, 2 * count + 3 * folders)
    stems, drawn = drawn[:count], drawn[count:]
    texts, drawn = drawn[:count], drawn[count:]
    files = [(text_file(random, stem), f"{text}\n") for stem, text in zip(stems, texts, strict=True)]
    kept = [
        (text_file(random, f"{folder}/{stem}"), f"{text}\n")
        for folder, stem, text in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True)
    ]
    target, folder = random.choice(files)[0], drawn[0]
    end = [(f"{folder}/{name}" if name == target else name, text) for name, text in files]
    return Goal(
        kind="into",
        instruction=random.choice(TEMPLATES["into"][split]).format(file=target, folder=folder),
        target=target,
        wanted=folder,
        files=(*files, *kept),
        end=(*end, *kept),
    )


def into(view: View) -> Move:
    """The next move towards the file's being in the folder `wanted`."""
    return _move(view, FOLDER, view.goal.wanted)


def out(view: View) -> Move:
    """The next move towards the file's being beside the folder `wanted` that it is in."""
    return _move(view, view.goal.wanted, FOLDER)


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
    if there == FOLDER:
        up = view.labelled("push-button", "Parent Folder")
        return click(view, up) if by_button and up else keys(f"{here} -> up", "alt", "up")
    folder = view.find("icon", lambda e: e.label == there)
    if folder is None:
        return "wait for the files", Wait()
    return pointed(view, folder, "open"), Click(coordinates=folder, num_clicks=2)


FAMILY = of_files("files_move", ("file_manager",), TEMPLATES, goal, opened=lambda _: [DOCUMENTS], decide=into)
