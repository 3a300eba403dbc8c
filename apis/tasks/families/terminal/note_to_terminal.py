"""Tasks on two applications: a note in the text editor says what a command in the terminal needs.

Invariant: what the note says stands in no instruction. A task is solved only if Documents holds exactly what the
command makes of it, with the note as it was.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.note import EDITOR, noted, read
from apis.tasks.families.terminal.shell import FOLDER, finish
from apis.tasks.family import DOCUMENTS, TERMINAL, of_files
from apis.tasks.goal import Goal
from apis.tasks.oracle import switch
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "folder": {
        TRAIN: (
            "The note {note} names a folder, make it in Documents with a command",
            "Make the folder that {note} names in Documents, use the terminal",
            "Use the shell to make a folder in Documents with the name in {note}",
            "Read {note} in the editor, then make a folder of that name in Documents with a command",
            "What {note} says is the name of a folder to make in Documents with the shell",
            "Look into {note}, it says which folder to make in Documents, do it in the terminal",
            "Use a command to make a folder in Documents and call it what the note {note} says",
            "The note {note} tells the name of a missing folder, create it in Documents from the command line",
            "From the command line, create the folder in Documents that {note} names",
            "Go by the note {note} and make the folder it names in Documents with a command",
            "Keep in mind what {note} says, then name a new folder in Documents so in the terminal",
            "Documents should have a folder called what {note} says, type the command",
        ),
        HELD_OUT: (
            "Make a folder in Documents with a command, the note {note} has its name",
            "The folder that {note} names is missing in Documents, make it in the terminal",
        ),
    },
    "delete": {
        TRAIN: (
            "The note {note} names a file, delete it from Documents with a command",
            "Delete the file that {note} names from Documents, use the terminal",
            "Use the shell to remove the file in Documents with the name in {note}",
            "Read {note} in the editor, then remove the file of that name in Documents with a command",
            "What {note} says is the name of a file to delete in Documents with the shell",
            "Look into {note}, it says which file to remove from Documents, do it in the terminal",
            "Use a command to throw away the file in Documents whose name the note {note} has",
            "The note {note} tells the name of a useless file, delete it from Documents on the command line",
            "From the command line, remove the file in Documents that {note} names",
            "Go by the note {note} and delete the file it names from Documents with a command",
            "Keep in mind what {note} says, then remove the file called so from Documents in the terminal",
            "Documents should have no file called what {note} says, type the command",
        ),
        HELD_OUT: (
            "Delete a file in Documents with a command, the note {note} has its name",
            "The file that {note} names is not needed in Documents, remove it in the terminal",
        ),
    },
    "write": {
        TRAIN: (
            "Write what the note {note} says into the new file {new} in Documents with a command",
            "Put the line of {note} into a file {new} in Documents, use the terminal",
            "Use the shell to make a file {new} in Documents that says the same as {note}",
            "Read {note} in the editor, then write its line to {new} in Documents with a command",
            "What {note} says should be the text of a new file {new} in Documents, use a command",
            "Look into {note} and write what it says to {new} in Documents in the terminal",
            "Use a command to save the line of the note {note} as {new} in Documents",
            "The note {note} has a line, put it into the new file {new} in Documents from the command line",
            "From the command line, create {new} in Documents with what {note} says",
            "Go by the note {note} and make {new} in Documents with the same text, use the shell",
            "Keep in mind what {note} says, then write it into {new} in Documents with the shell",
            "Documents should have a file {new} with the line of {note}, type the command",
        ),
        HELD_OUT: (
            "Make a file {new} in Documents with a command, the note {note} has its line",
            "The line of {note} should be in a new file {new} in Documents, write it in the terminal",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    stems = words(random, split, 7)
    note, other, third, new = (text_file(random, stem) for stem in stems[:4])
    says = {"folder": stems[4], "delete": other, "write": " ".join(stems[4 : 5 + random.choice((0, 1))])}[kind]
    files = {note: f"{says}\n", other: f"{stems[5]}\n", third: f"{stems[6]}\n"}
    end: dict[str, str | None] = dict(files)
    match kind:
        case "folder":
            end[says] = None
        case "delete":
            del end[says]
        case "write":
            end[new] = f"{says}\n"
    return Goal(
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(note=note, new=new),
        target=note,
        wanted=new if kind == "write" else "",
        files=tuple(files.items()),
        end=tuple(end.items()),
        words=(says,),
        front=random.choice((EDITOR, TERMINAL)),
    )


def decide(view: View) -> Move:
    """The next move of its oracle."""
    goal = view.goal
    says = goal.words[0]
    if not noted(view, says):
        return read(view, goal.target, says)
    if view.observation.app != TERMINAL:
        return switch(view, TERMINAL)
    command = {
        "folder": f"mkdir {FOLDER}/{says}",
        "delete": f"rm {FOLDER}/{says}",
        "write": f"echo {says} > {FOLDER}/{goal.wanted}",
    }[goal.kind]
    return finish(view, f"noted {says} -> {goal.kind}", command)


def _opened(made: Goal) -> list[str]:
    note = f"{DOCUMENTS}/{made.target}"
    return [TERMINAL, note] if made.front == EDITOR else [note, TERMINAL]


FAMILY = of_files("note_to_terminal", (TERMINAL, EDITOR), TEMPLATES, goal, opened=_opened, decide=decide)
