"""Tasks on two applications: a note in the text editor says what the file manager shall make or delete.

Invariant: what the note says stands in no instruction. A task is solved only if Documents holds exactly what is asked,
with the note as it was.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from apis.tasks.families.files import file_manager
from apis.tasks.families.note import EDITOR, noted, read
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import switch
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

FILES = "file_manager"

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "folder": {
        TRAIN: (
            "The note {note} names a folder, make it in the file manager",
            "Make the folder that {note} names",
            "A folder with the name in {note} is needed",
            "Read {note} in the editor, then make a folder of that name",
            "What {note} says is the name of a new folder, make it",
            "Look into {note}, it says which folder to make",
            "Make a new folder and call it what the note {note} says",
            "The note {note} tells the name of a missing folder, create it",
            "Create the folder whose name stands in {note}",
            "Go by the note {note} and make the folder it names in the file manager",
            "Keep in mind what {note} says and name a new folder so",
            "There should be a folder called what {note} says",
        ),
        HELD_OUT: ("Make a folder, the note {note} has its name", "The folder that {note} names is missing, make it"),
    },
    "delete": {
        TRAIN: (
            "The note {note} names a file, delete it in the file manager",
            "Delete the file that {note} names",
            "The file with the name in {note} is not needed, delete it",
            "Read {note} in the editor, then remove the file of that name",
            "What {note} says is the name of a file to delete",
            "Look into {note}, it says which file to remove",
            "Throw away the file whose name the note {note} has",
            "The note {note} tells the name of a useless file, remove it",
            "Remove the file whose name stands in {note}",
            "Go by the note {note} and delete the file it names in the file manager",
            "Keep in mind what {note} says and delete the file called so",
            "There should be no file called what {note} says",
        ),
        HELD_OUT: ("Delete a file, the note {note} has its name", "The file that {note} names should go, remove it"),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    stems = words(random, split, 7)
    note, *others = (text_file(random, stem) for stem in stems[:3])
    says = stems[3] if kind == "folder" else random.choice(others)
    files = {note: f"{says}\n"} | {name: f"{text}\n" for name, text in zip(others, stems[4:], strict=False)}
    end: dict[str, str | None] = dict(files)
    if kind == "folder":
        end[says] = None
    else:
        del end[says]
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(note=note),
        target=note,
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(says,),
    )


def decide(view: View) -> Move:
    """The next move of its oracle."""
    says, folder = view.goal.words[0], view.goal.kind == "folder"
    if not noted(view, says):
        return read(view, view.goal.target, says)
    if view.observation.app != FILES:
        return switch(view, FILES)
    told = replace(view.goal, target="" if folder else says, wanted=says if folder else "")
    return file_manager.decide(replace(view, goal=told))


FAMILY = of_files(
    "note_to_files",
    (FILES, EDITOR),
    TEMPLATES,
    goal,
    opened=lambda made: [DOCUMENTS, f"{DOCUMENTS}/{made.target}"],
    decide=decide,
)
