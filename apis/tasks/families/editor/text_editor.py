"""Tasks on the text editor: replace a file's text, add a line at its end or at its top, and save.

Literal text stands in quotes, as in OSWorld's instructions, so that its end is plain.

Invariant: the two splits share no template and, since words are split by their hash, no name and no text. A task is
solved only if no file was added. The oracle ends only when the window shows the wanted text without the mark of unsaved
changes.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Hotkey, Type
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, exactly, in_documents, setup
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import Evaluator, Step
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

UNSAVED = "*"  # the title begins with it
TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "replace": {
        TRAIN: (
            "Replace everything in {file} with '{line}'",
            "Overwrite the text of {file} with '{line}' and save it",
            "Make {file} say only '{line}'",
            "Replace the old text of {file}, write '{line}' instead",
            "The file {file} should say nothing but '{line}'",
            "Overwrite {file}, its whole text should be '{line}'",
            "Empty {file} and write '{line}' into it",
            "Delete all that {file} says and write '{line}' there",
            "Nothing but '{line}' should stand in {file}",
            "{file} should hold one line alone, '{line}'",
            "Change {file} so that it says '{line}' and nothing else",
            "Throw away what {file} says, then write '{line}'",
            "The new text of {file} is '{line}', the old one should go",
            "Let '{line}' be all that the file {file} says",
            "Exchange the text of {file} for '{line}' and save the file",
        ),
        HELD_OUT: (
            "Replace the whole text of {file} with '{line}'",
            "Overwrite everything in {file}, it should say only '{line}'",
            "Make the file {file} say nothing but '{line}' and save it",
        ),
    },
    "append": {
        TRAIN: (
            "Add the line '{line}' at the end of {file}",
            "Append '{line}' to {file} and save it",
            "Write '{line}' below the last line of {file}",
            "Put '{line}' at the bottom of the file {file}",
            "The last line of {file} should be '{line}', add it",
            "Append the line '{line}' at the bottom of {file}",
            "{file} should end with the line '{line}'",
            "Go to the end of {file} and write '{line}' on a new line",
            "After the last line of {file} write '{line}'",
            "Let {file} end with '{line}', keep what stands before",
            "One more line for {file}, '{line}', after all others",
            "Add one line to the end of the file {file}, it says '{line}'",
            "Below everything in {file} should stand '{line}'",
            "Keep the text of {file} and write '{line}' under it",
            "'{line}' is missing at the end of {file}, write it there",
        ),
        HELD_OUT: (
            "Append the line '{line}' at the end of {file}",
            "Put the line '{line}' below the last line of {file}",
            "Add '{line}' at the bottom of {file} and save it",
        ),
    },
    "prepend": {
        TRAIN: (
            "Add the line '{line}' at the top of {file}",
            "Insert '{line}' above the first line of {file}",
            "Write '{line}' at the start of {file} and save it",
            "Put '{line}' at the very top of the file {file}",
            "The first line of {file} should be '{line}', insert it",
            "Insert the line '{line}' at the start of {file}",
            "{file} should begin with the line '{line}'",
            "Go to the start of {file} and write '{line}' on a line of its own",
            "Before the first line of {file} write '{line}'",
            "Let {file} begin with '{line}', keep what comes after",
            "One more line for {file}, '{line}', before all others",
            "Add one line to the top of the file {file}, it says '{line}'",
            "Above everything in {file} should stand '{line}'",
            "Keep the text of {file} and write '{line}' above it",
            "'{line}' is missing at the top of {file}, write it there",
        ),
        HELD_OUT: (
            "Insert the line '{line}' at the top of {file}",
            "Put the line '{line}' above the first line of {file}",
            "Add '{line}' at the start of {file} and save it",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    drawn = words(random, split, 8)
    name = text_file(random, drawn[0])
    line = " ".join(drawn[1 : 1 + random.choice((1, 2, 2, 3))])
    old = [" ".join(drawn[4:6]), drawn[6], drawn[7]][: random.choice((1, 2, 2, 3))]
    wanted = {"replace": [line], "append": [*old, line], "prepend": [line, *old]}[kind]
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(file=name, line=line),
        target=name,
        wanted="\n".join(wanted),
        files=((name, "".join(f"{text}\n" for text in old)),),
    )


def config(made: Goal) -> list[Step]:
    """The file is open."""
    return setup(made, f"{DOCUMENTS}/{made.target}")


def evaluator(made: Goal) -> Evaluator:
    """Documents holds the file alone, with the text."""
    return exactly({made.target: made.wanted})


def solved(made: Goal) -> Files:
    """The files when it is done."""
    return in_documents(dict(made.files) | {made.target: made.wanted + "\n"})


def decide(view: View) -> Move:
    """The next move."""
    select_first, save_by_menu = view.route.random() < 0.35, view.route.random() < 0.35
    field, menu = view.field(), view.find("menu-item", lambda e: True)
    if field is None:
        return keys("close this", "esc")
    if view.elements[field].text.rstrip("\n") == view.goal.wanted:
        return save(view, menu, save_by_menu)
    if menu is not None:
        return keys("close this", "esc")
    return _write(view, field, select_first)


def save(view: View, menu: str | None, by_menu: bool) -> Move:
    """Save the text that stands as it should, by the open `menu`, the File menu or the keys; once saved, end."""
    if not view.title.startswith(UNSAVED):
        return "saved -> done", Exit(success=True)
    if menu is not None:
        item = view.find("menu-item", lambda e: e.label.strip() == "Save")
        return click(view, item) if item else keys("close this", "esc")
    file_menu = view.labelled("menu", "File")
    return click(view, file_menu, "save") if by_menu and file_menu else keys("save", "ctrl", "s")


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


FAMILY = Family(
    "text_editor", ("text_editor",), goal, config, evaluator, solved, {"gui": decide}, TEMPLATES, may=ITS_END
)
