"""Tasks on VS Code: change, append or delete a line of one of the files of a folder, and save.

Invariant: no line stands in a file twice. A task is solved only if every other line and file is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from apis.tasks.data_url import data_url
from apis.tasks.families.code import code, code_text_oracle
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, Templates, exactly, in_documents, in_osworld_form
from apis.tasks.goal import Goal
from apis.tasks.osworld import Open, OpenParameters, Source, Task
from apis.tasks.view import Decide
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "code_text"
EXTENSIONS = ("txt", "md", "log")

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "change": {
        TRAIN: (
            "Change the line '{old}' of {file} to '{new}' in VS Code",
            "In VS Code, write '{new}' in place of the line '{old}' in {file}",
            "The line '{old}' in {file} is wrong, make it '{new}' with VS Code",
            "Correct {file} in VS Code: the line '{old}' should be '{new}'",
            "In the file {file} that VS Code lists, turn the line '{old}' into '{new}' and save it",
            "With VS Code, replace the line '{old}' of the file {file} by '{new}'",
        ),
        HELD_OUT: (
            "Replace the line '{old}' in {file} by '{new}' in VS Code",
            "In VS Code, make the line '{old}' of {file} say '{new}' and save it",
            "The file {file} should have the line '{new}' instead of '{old}', change it with VS Code",
        ),
    },
    "append": {
        TRAIN: (
            "Append the line '{new}' to {file} in VS Code",
            "In VS Code, add '{new}' below the last line of {file}",
            "With VS Code, write the line '{new}' at the end of {file} and save it",
            "The last line of {file} should be '{new}', add it in VS Code",
            "Use VS Code to put '{new}' at the bottom of {file}",
            "Open {file} in VS Code and add the line '{new}' after all others",
        ),
        HELD_OUT: (
            "Add the line '{new}' at the end of {file} in VS Code",
            "In VS Code, append '{new}' as the last line of {file} and save it",
            "Use VS Code to write '{new}' below everything in {file}",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete the line '{old}' from {file} in VS Code",
            "In VS Code, remove the line '{old}' of {file}",
            "The line '{old}' does not belong in {file}, take it out with VS Code",
            "With VS Code, delete '{old}' from the file {file} and save it",
            "Use VS Code to drop the line '{old}' from {file}",
            "Open {file} in VS Code and delete the line that says '{old}'",
        ),
        HELD_OUT: (
            "Remove the line '{old}' from {file} in VS Code",
            "In VS Code, take the line '{old}' out of {file} and save it",
            "Use VS Code to delete the line '{old}' of the file {file}",
        ),
    },
}


def texts(random: Random, split: str, count: int) -> tuple[dict[str, list[str]], list[str]]:
    """`count` files of a few lines, and words that stand in none of them."""
    drawn = words(random, split, 5 * count + 2)
    files = {}
    for at in range(count):
        stem, *rest = drawn[5 * at : 5 * at + 5]
        lines = [" ".join(rest[:2]), rest[2], rest[3]][: random.choice((2, 3, 3))]
        random.shuffle(lines)
        files[f"{stem}.{random.choice(EXTENSIONS)}"] = lines
    return files, drawn[-2:][: random.choice((1, 2))]


def content(lines: list[str]) -> str:
    """The lines as a file holds them."""
    return "".join(f"{text}\n" for text in lines)


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    files, fresh = texts(random, split, random.choice((2, 3)))
    target, new = random.choice(sorted(files)), " ".join(fresh)
    lines = files[target]
    at = len(lines) if kind == "append" else random.randrange(len(lines))
    old = "" if kind == "append" else lines[at]
    after = [*lines[:at], *([] if kind == "delete" else [new]), *lines[at + 1 :]]
    start = {name: content(held) for name, held in files.items()}
    return Goal(
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(file=target, old=old, new=new),
        target=target,
        wanted="" if kind == "delete" else new,
        files=tuple(start.items()),
        end=tuple((start | {target: content(after)}).items()),
        words=(old,),
    )


def of_documents(
    name: str,
    apps: tuple[str, ...],
    goal: Callable[[Random, str], Goal],
    *,
    routes: Mapping[str, Decide],
    templates: Templates,
    front: Callable[[Goal], str] = lambda _: "",
    trained: bool = True,
) -> Family:
    """A family that starts with Documents shown in VS Code and is done when it holds exactly the goal's `end`.

    `front` names the file that lies open before it in the text editor, where there is one.
    """

    def task(task_id: str, made: Goal) -> Task:
        sources = [Source(url=data_url(text.encode()), path=f"{DOCUMENTS}/{file}") for file, text in made.files]
        note = front(made)
        opened = [Open(parameters=OpenParameters(path=f"{DOCUMENTS}/{note}"))] if note else []
        return in_osworld_form(task_id, made, [*code.shown(sources), *opened], exactly(dict(made.end)), apps)

    def solved(made: Goal) -> Files:
        return in_documents({path: text for path, text in made.end if text is not None})

    return Family(name, code.CODE, apps, goal, task, solved, routes, templates, trained, may=ITS_END)


FAMILY = of_documents(
    NAME,
    (code.CODE,),
    goal,
    routes={"gui": code_text_oracle.by_gui, "mixed": code_text_oracle.by_tools},
    templates=TEMPLATES,
)
