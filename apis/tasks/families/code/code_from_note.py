"""Tasks on two applications, never trained on: a note in the text editor says what VS Code shall append to a file.

Invariant: what the note says stands in no instruction; a task is solved only if that line was added and the note is as
it was.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.code import code_text
from apis.tasks.families.code.code import CODE
from apis.tasks.families.code.code_text import content, of_documents, texts
from apis.tasks.families.note import EDITOR, noted, read
from apis.tasks.goal import Goal
from apis.tasks.oracle import switch
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "append": {
        TRAIN: (),
        HELD_OUT: (
            "The note {note} says which line {file} lacks, append it in VS Code",
            "Read {note} in the editor, then add that line at the end of {file} with VS Code",
            "What {note} says should also be the last line of {file}, use VS Code for it",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    files, fresh = texts(random, split, random.choice((2, 3)))
    note, *others = files
    target, says = random.choice(others), " ".join(fresh)
    start = {note: f"{says}\n"} | {name: content(files[name]) for name in others}
    return Goal(
        kind="append",
        instruction=random.choice(TEMPLATES["append"][split]).format(note=note, file=target),
        target=target,
        wanted=says,
        files=tuple(start.items()),
        end=tuple((start | {target: f"{start[target]}{says}\n"}).items()),
        words=(note,),
    )


def after_reading(edit: Decide) -> Decide:
    """Read the note and keep what it says, then go to VS Code and `edit`."""

    def decide(view: View) -> Move:
        if not noted(view, view.goal.wanted):
            return read(view, view.goal.words[0], view.goal.wanted)
        return edit(view) if view.observation.app == CODE else switch(view, CODE)

    return decide


FAMILY = of_documents(
    "code_from_note",
    (CODE, EDITOR),
    TEMPLATES,
    goal,
    {"gui": after_reading(code_text.by_gui), "mixed": after_reading(code_text.by_tools)},
    front=lambda made: made.words[0],
)
