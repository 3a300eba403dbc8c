"""Tasks on the file manager: rename a file among others, make a folder, delete a file.

Invariant: the two splits share no template and, since words are split by their hash, no name and no text. A task is
solved only if every other file is as it was and none was added.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.files import file_manager_oracle
from apis.tasks.family import DOCUMENTS, ITS_END, Family, Files, exactly, in_documents, in_osworld_form, setup
from apis.tasks.goal import Goal
from apis.tasks.osworld import Task
from apis.tasks.verify.verify import FileView
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "file_manager"
EXTENSIONS = ("txt", "md", "log")

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "rename": {
        TRAIN: (
            "Rename the file {old} to {new}",
            "Change the name of {old} to {new}",
            "Give {old} the new name {new}",
            "The file {old} should be called {new}",
            "{old} has the wrong name, call it {new}",
            "Rename {old}, its new name is {new}",
            "Call the file {old} {new} from now on",
            "Let {old} be named {new}",
            "{old} gets the name {new}",
            "Set the name of the file {old} to {new}",
            "The right name for {old} is {new}, change it",
            "{new} should be the name of the file {old}",
            "The file now called {old} should have the name {new}",
            "Use {new} as the new name of {old}",
            "Please rename {old} so that it is called {new}",
        ),
        HELD_OUT: (
            "Rename {old}, it should be called {new}",
            "Give the file {old} the name {new}",
            "Change the wrong name {old} to {new}",
        ),
    },
    "folder": {
        TRAIN: (
            "Make a new folder named {new}",
            "Create a folder called {new}",
            "A folder {new} is needed here",
            "Add a folder with the name {new}",
            "New folder {new}",
            "Make the folder {new}",
            "There should be a folder {new} here",
            "Put a new folder here, its name is {new}",
            "We need one more folder, call it {new}",
            "Please make a folder and name it {new}",
            "Let there be a new folder with the name {new}",
            "{new} should be a folder here, create it",
            "Create one folder here and call it {new}",
            "A new folder is missing, it is called {new}",
            "Set up the folder {new} beside these files",
        ),
        HELD_OUT: (
            "Create a new folder with the name {new}",
            "Make a folder called {new}",
            "Add a new folder {new} here",
        ),
    },
    "delete": {
        TRAIN: (
            "Delete the file {old}",
            "Remove {old} from this folder",
            "Throw away {old}",
            "The file {old} is not needed, delete it",
            "{old} should go, remove it",
            "Delete {old}, keep the other files",
            "Get rid of the file {old}",
            "Take {old} away from here",
            "Please delete {old}",
            "Nobody needs {old}, throw it away",
            "{old} has no use any more, delete it",
            "The file {old} can go",
            "Erase {old} and nothing else",
            "There should be no file {old} here",
            "Of these files only {old} should be removed",
        ),
        HELD_OUT: (
            "Delete {old} from this folder",
            "Throw the file {old} away",
            "{old} is not needed, remove it",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    count = random.choice((3, 4, 5))
    drawn = words(random, split, 2 * count + 1)
    names = [f"{stem}.{random.choice(EXTENSIONS)}" for stem in drawn[:count]]
    target = random.choice(names)
    wanted = drawn[-1] if kind == "folder" else f"{drawn[-1]}.{random.choice(EXTENSIONS)}"
    return Goal(
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(old=target, new=wanted),
        target=target if kind != "folder" else "",
        wanted=wanted if kind != "delete" else "",
        files=tuple(zip(names, (f"{text}\n" for text in drawn[count : 2 * count]), strict=True)),
    )


def task(task_id: str, made: Goal) -> Task:
    """The instance in OSWorld's form."""
    return in_osworld_form(task_id, made, setup(made, DOCUMENTS), exactly(_end(made)))


def _end(made: Goal) -> dict[str, str | None]:
    """What Documents holds when it is done: texts by name, None for a folder."""
    files: dict[str, str | None] = {name: text for name, text in made.files if name != made.target}
    if made.wanted:
        files[made.wanted] = dict(made.files).get(made.target)
    return files


def solved(made: Goal) -> Files:
    """The files when it is done."""
    end = _end(made)
    texts = in_documents({name: text for name, text in end.items() if text is not None})
    return texts | {f"Documents/{name}": FileView("folder") for name, text in end.items() if text is None}


FAMILY = Family(
    name=NAME,
    app="file_manager",
    apps=("file_manager",),
    drawn=goal,
    built=task,
    solved=solved,
    routes={"gui": file_manager_oracle.decide},
    templates=TEMPLATES,
    may=ITS_END,
)
