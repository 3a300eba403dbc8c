"""Tasks on the text editor: replace a word by another wherever it stands in a file, and save.

Invariant: the old word stands in the text twice or more, inside no other word, and the new one nowhere.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Hotkey, Type
from apis.tasks.families.editor.text_editor import UNSAVED, save
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

DIALOG = "Find and Replace"

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "word": {
        TRAIN: (
            "Replace every '{old}' in {file} by '{new}'",
            "In {file} change the word '{old}' to '{new}' everywhere",
            "Write '{new}' instead of '{old}' throughout {file} and save it",
            "Each '{old}' in the file {file} should be '{new}'",
            "Find '{old}' in {file} and put '{new}' in its place",
            "The word '{old}' in {file} is wrong, it should be '{new}'",
            "Everywhere in {file} '{old}' should become '{new}'",
            "Exchange '{old}' for '{new}' wherever {file} has it",
            "Let {file} say '{new}' wherever it says '{old}'",
            "Find all '{old}' in {file} and make them '{new}'",
            "Correct {file}, it says '{old}' and should say '{new}'",
            "{file} should not say '{old}' any more but '{new}'",
            "Turn every '{old}' of {file} into '{new}' and save the file",
            "No '{old}' should be left in {file}, write '{new}' for it",
            "Use find and replace on {file}, '{old}' becomes '{new}'",
            "All places in {file} with '{old}' should have '{new}'",
        ),
        HELD_OUT: (
            "Change every '{old}' in the file {file} to '{new}'",
            "Replace the word '{old}' by '{new}' everywhere in {file}",
            "Put '{new}' instead of each '{old}' in {file} and save it",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    old, new, *others = _apart(words(random, split, 9))
    text = [old] * random.choice((2, 2, 3)) + others[: random.choice((2, 3))]
    random.shuffle(text)
    cut = random.randrange(1, len(text))
    lines = "".join(f"{' '.join(part)}\n" for part in (text[:cut], text[cut:]))
    name = text_file(random, others[-1])
    wanted = " ".join(new if word == old else word for word in lines.replace("\n", " \n ").split(" "))
    wanted = wanted.replace(" \n ", "\n")
    return Goal(
        kind="word",
        instruction=random.choice(TEMPLATES["word"][split]).format(file=name, old=old, new=new),
        target=name,
        wanted=wanted.rstrip("\n"),
        files=((name, lines),),
        end=((name, wanted),),
        words=(old, new),
    )


def _apart(drawn: list[str]) -> list[str]:
    """Those of `drawn` that neither hold the first two nor stand in them, since the editor finds parts of words."""
    old, *others = drawn
    return [old, *(word for word in others if old not in word and word not in old)]


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
        return save(view, menu, save_by_menu and not by_dialog)
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


FAMILY = of_files(
    "editor_find", ("text_editor",), TEMPLATES, goal, opened=lambda made: [f"{DOCUMENTS}/{made.target}"], decide=decide
)
