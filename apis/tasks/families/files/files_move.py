"""Tasks on the file manager: move a file into a folder that is there.

Invariant: a task is solved only if the file lies in the folder and everything else is as it was.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.files import files_move_oracle
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "files_move"
EXTENSIONS = ("txt", "md", "log")

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "into": {
        TRAIN: (
            "Move {file} into the folder {folder}",
            "Put the file {file} into {folder}",
            "{file} belongs in the folder {folder}",
            "The file {file} should be in the folder {folder}",
            "Move the file {file} to {folder}",
            "Take {file} and put it in the folder {folder}",
            "{folder} is the right folder for {file}, move it there",
            "Please move {file}, it should lie in {folder}",
            "Let {file} lie in the folder {folder}",
            "Bring the file {file} into {folder}",
            "Cut {file} here and paste it in {folder}",
            "Store {file} in the folder {folder}, not here",
            "The right place of {file} is the folder {folder}",
            "File {file} away in {folder}",
            "In the folder {folder} should lie {file}, move it",
            "{file} lies in the wrong place, move it to the folder {folder}",
        ),
        HELD_OUT: (
            "Move the file {file} into {folder}",
            "Put {file} in the folder {folder}",
            "The file {file} belongs in {folder}, move it",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    count, folders = random.choice((2, 3, 4)), random.choice((1, 1, 2))
    drawn = words(random, split, 2 * count + 3 * folders)
    stems, drawn = drawn[:count], drawn[count:]
    texts, drawn = drawn[:count], drawn[count:]
    files = [(f"{stem}.{random.choice(EXTENSIONS)}", f"{text}\n") for stem, text in zip(stems, texts, strict=True)]
    kept = [
        (f"{folder}/{stem}.{random.choice(EXTENSIONS)}", f"{text}\n")
        for folder, stem, text in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True)
    ]
    target, folder = random.choice(files)[0], drawn[0]
    end = [(f"{folder}/{name}" if name == target else name, text) for name, text in files]
    return Goal(
        family=NAME,
        kind="into",
        instruction=random.choice(TEMPLATES["into"][split]).format(file=target, folder=folder),
        target=target,
        wanted=folder,
        files=(*files, *kept),
        end=(*end, *kept),
    )


FAMILY = of_files(
    NAME,
    ("file_manager",),
    goal,
    opened=lambda _: [DOCUMENTS],
    decide=files_move_oracle.into,
    templates=TEMPLATES,
)
