"""Tasks on the file manager, never trained on: take a file out of a folder into the folder above.

Invariant: a task is solved only if the file lies beside the folder and everything else is as it was.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.files import files_move
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.goal import Goal
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "out": {
        TRAIN: (),
        HELD_OUT: (
            "Move {file} out of {folder} into Documents",
            "Take the file {file} out of the folder {folder}, it belongs in Documents",
            "{file} should not be in {folder} but in Documents",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    count = random.choice((2, 3))
    folder, beside, text, *drawn = words(random, split, 2 * count + 3)
    names = [text_file(random, stem) for stem in drawn[:count]]
    inside = dict(zip(names, (f"{text}\n" for text in drawn[count:]), strict=True))
    above = {text_file(random, beside): f"{text}\n"}
    target = random.choice(names)
    end = above | {target: inside[target]} | {f"{folder}/{n}": text for n, text in inside.items() if n != target}
    return Goal(
        kind="out",
        instruction=random.choice(TEMPLATES["out"][split]).format(file=target, folder=folder),
        target=target,
        wanted=folder,
        files=(*above.items(), *((f"{folder}/{name}", text) for name, text in inside.items())),
        end=tuple(end.items()),
    )


FAMILY = of_files(
    "files_out",
    ("file_manager",),
    TEMPLATES,
    goal,
    opened=lambda made: [f"{DOCUMENTS}/{made.wanted}"],
    decide=files_move.out,
)
