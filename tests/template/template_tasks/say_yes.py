"""Tasks on the text editor: have a file say one word.

Invariant: a task is solved only if the file holds that word alone and nothing else in Documents has changed.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Hotkey, Type
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.view import Goal, Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES = {
    "say": {
        TRAIN: ("Let {file} say '{word}' and nothing else",),
        HELD_OUT: ("The only word in {file} should be '{word}'",),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    stem, before, word = words(random, split, 3)
    file = text_file(random, stem)
    return Goal(
        kind="say",
        instruction=TEMPLATES["say"][split][0].format(file=file, word=word),
        target=file,
        wanted=word,
        files=((file, f"{before}\n"),),
        end=((file, f"{word}\n"),),
    )


def decide(view: View) -> Move:
    """The next move of its oracle: write, save, claim."""
    field = view.field()
    if view.elements[field].text.rstrip("\n") != view.goal.wanted:
        return "write it", Type(coordinates=field, text=view.goal.wanted, overwrite=True)
    if not any("ctrl" in (turn.line or "") for turn in view.history):
        return "save it", Hotkey(keys=("ctrl", "s"))
    return "done", Exit(success=True)


FAMILY = of_files(
    "say_yes",
    ("text_editor",),
    TEMPLATES,
    goal,
    opened=lambda made: [f"{DOCUMENTS}/{made.target}"],
    decide=decide,
)
