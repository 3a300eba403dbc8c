"""Tasks on the text editor: replace a file's text, add a line at its end or at its top, and save.

Literal text stands in quotes, as in OSWorld's instructions, so that its end is plain.

Invariant: the two splits share no template and, since words are split by their hash, no name and no text. A task is
solved only if no file was added.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.editor import text_editor_oracle
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, exactly, in_documents, in_osworld_form, setup
from apis.tasks.goal import Goal
from apis.tasks.osworld import Task
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "text_editor"
EXTENSIONS = ("txt", "md", "log")

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
    name = f"{drawn[0]}.{random.choice(EXTENSIONS)}"
    line = " ".join(drawn[1 : 1 + random.choice((1, 2, 2, 3))])
    old = [" ".join(drawn[4:6]), drawn[6], drawn[7]][: random.choice((1, 2, 2, 3))]
    wanted = {"replace": [line], "append": [*old, line], "prepend": [line, *old]}[kind]
    return Goal(
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(file=name, line=line),
        target=name,
        wanted="\n".join(wanted),
        files=((name, "".join(f"{text}\n" for text in old)),),
    )


def task(task_id: str, made: Goal) -> Task:
    """The instance in OSWorld's form."""
    end: dict[str, str | None] = {made.target: made.wanted}
    return in_osworld_form(task_id, made, setup(made, f"{DOCUMENTS}/{made.target}"), exactly(end))


def solved(made: Goal) -> Files:
    """The files when it is done."""
    return in_documents(dict(made.files) | {made.target: made.wanted + "\n"})


FAMILY = Family(
    name=NAME,
    app="text_editor",
    apps=("text_editor",),
    drawn=goal,
    built=task,
    solved=solved,
    routes={"gui": text_editor_oracle.decide},
    templates=TEMPLATES,
    may=ITS_END,
)
