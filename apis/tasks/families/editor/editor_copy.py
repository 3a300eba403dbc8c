"""Tasks on the text editor, never trained on: save the open file under another name.

Invariant: a task is solved only if both files are there with the same text, and nothing else.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Type
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

DIALOG = "Save As"

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "copy": {
        TRAIN: (),
        HELD_OUT: (
            "Save {old} under the name {new} too",
            "Save a copy of {old}, call it {new}",
            "The text of {old} should be in a second file {new} as well",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    old, new, *text = words(random, split, 2 + random.choice((2, 3, 4)))
    names = [text_file(random, stem) for stem in (old, new)]
    content = f"{' '.join(text)}\n"
    return Goal(
        kind="copy",
        instruction=random.choice(TEMPLATES["copy"][split]).format(old=names[0], new=names[1]),
        target=names[0],
        wanted=names[1],
        files=((names[0], content),),
        end=tuple((name, content) for name in names),
    )


def decide(view: View) -> Move:
    """The next move of its oracle."""
    by_menu = view.route.random() < 0.4
    entry = view.labelled("menu-item", "Save As")
    if view.title == DIALOG:
        name = view.find("text", lambda e: e.editable)
        if name is None:
            return keys("close this", "esc")
        text = Type(coordinates=name, text=view.goal.wanted, overwrite=True, enter=True)
        return f"{pointed(view, name, view.goal.wanted)}", text
    if view.title.startswith(f"{view.goal.wanted} "):
        return "saved -> done", Exit(success=True)
    if entry is not None:
        return click(view, entry)
    file_menu = view.labelled("menu", "File")
    if view.find("menu-item", lambda e: True) or file_menu is None:
        return keys("close this", "esc")
    return click(view, file_menu, "save as") if by_menu else keys("save as", "ctrl", "shift", "s")


FAMILY = of_files(
    "editor_copy", ("text_editor",), TEMPLATES, goal, opened=lambda made: [f"{DOCUMENTS}/{made.target}"], decide=decide
)
